package profile

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
)

// Line is a line of a table: what it is about, and what was measured.
type Line struct{ Key, Text string }

// leastShare of the bytes copied in a half makes a stream worth a line.
const leastShare = 0.01

// Lines returns the summary for people; what was not measured is left out, and
// streams that copied next to nothing.
func (s *Summary) Lines() []Line {
	if s == nil {
		return nil
	}
	var out []Line
	add := func(key, format string, args ...any) { out = append(out, Line{key, fmt.Sprintf(format, args...)}) }
	if s.Steps > 0 {
		for _, h := range []struct {
			name string
			Half
		}{{"forward", s.Forward}, {"backward", s.Backward}} {
			add(h.name+" half", "%s, compute %s busy", seconds(h.Seconds), percent(h.Busy))
			all := 0.0
			for _, c := range h.Copies {
				all += c.Bytes
			}
			for _, c := range h.Copies {
				if c.Bytes < leastShare*all {
					continue
				}
				add(h.name+", copies of "+c.Stream, "%s at %s/s, %s busy", decimal(c.Bytes), decimal(c.Rate), percent(c.Busy))
				add(h.name+", "+c.Stream+" between turns", "%s busy, without %s before the first copy and %s behind the last",
					percent(c.BusyBetween), seconds(c.First), seconds(c.Last))
			}
		}
		add("kernels launched", "%s a step", humanize.Comma(int64(s.Launches+0.5)))
	}
	if t := s.Traced; t != nil {
		var parts []string
		for _, k := range t.Kernels {
			parts = append(parts, fmt.Sprintf("%s %s", k.Family, percent(k.Share)))
		}
		add("traced", "%d steps of %s: %s, waiting for copies %s", t.Steps, seconds(t.Seconds), strings.Join(parts, ", "), percent(ratio(t.Waiting, t.Seconds)))
	}
	if m := s.Memory; m.Peak > 0 {
		add("card memory", "%s at most, %s at the end, within %.2f %%", humanize.IBytes(uint64(m.Peak)), humanize.IBytes(uint64(m.Steady)), 100*m.Drift)
	}
	if m := s.Memory; m.HostPeak > 0 {
		add("host memory", "%s at most", humanize.IBytes(uint64(m.HostPeak)))
	}
	return out
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// seconds writes a time of a step with three digits.
func seconds(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.3g ms", 1000*s)
	}
	return fmt.Sprintf("%.3g s", s)
}

// decimal writes bytes in units of 1000, as bandwidths are given.
func decimal(bytes float64) string { return humanize.SIWithDigits(bytes, 2, "B") }
