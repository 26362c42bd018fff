package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"

	"longship/cache/atomicfile"
	"longship/gpu/profile"
	"longship/internal/hostmem"
	"longship/internal/losslog"
	"longship/pipeline"
)

// summary is what a run tells at its end, also written as summary.json.
type summary struct {
	Run        string           `json:"run"`
	Result     string           `json:"result"` // done, interrupted or failed
	Error      string           `json:"error,omitempty"`
	Seconds    float64          `json:"seconds"`
	Stages     []stageLine      `json:"stages"`
	SetAside   []asideLine      `json:"set_aside"`
	Steps      int              `json:"steps"` // of this process
	StepTime   float64          `json:"seconds_per_step"`
	Validation *validation      `json:"validation,omitempty"`
	Profile    *profile.Summary `json:"profile,omitempty"` // of the streams of the device
	PeakMemory int64            `json:"peak_resident_bytes"`
	Files      []string         `json:"files"` // written, and not removed since to make room for newer ones

	trainer string // id of the stage whose steps were seen
}

type stageLine struct {
	Stage string `json:"stage"`
	Key   string `json:"key"`
	Value any    `json:"value"`
}

type asideLine struct {
	Stage  string `json:"stage"`
	Item   string `json:"item"`
	Reason string `json:"reason"`
}

// validation is the first and last validation of this process.
type validation struct {
	First *float64 `json:"first"`
	Last  *float64 `json:"last"`
	Zero  *float64 `json:"zero"`
}

func summarise(r *pipeline.Result, o *observer, err error) *summary {
	s := &summary{
		Run: r.Name, Result: "done", Seconds: r.Duration.Seconds(), Steps: o.steps, trainer: o.trainer,
		Files: []string{}, PeakMemory: hostmem.Peak(), Profile: o.profile, SetAside: []asideLine{}, Stages: []stageLine{},
	}
	switch {
	case errors.Is(err, pipeline.ErrInterrupted):
		s.Result = "interrupted"
	case err != nil:
		s.Result, s.Error = "failed", err.Error()
	}
	for _, f := range o.saved {
		if _, err := os.Stat(f); err == nil {
			s.Files = append(s.Files, f)
		}
	}
	for _, e := range r.Summary {
		s.Stages = append(s.Stages, stageLine(e))
	}
	for _, a := range r.SetAside {
		s.SetAside = append(s.SetAside, asideLine(a))
	}
	if o.timed > 0 {
		s.StepTime = o.stepTime.Seconds() / float64(o.timed)
	}
	if o.first != nil {
		s.Validation = &validation{First: o.first.Loss, Last: o.last.Loss, Zero: o.last.Zero}
	}
	return s
}

// write writes summary.json and the loss curve into the run's folder.
func (s *summary) write(dir, name string, losses *losslog.Log) error {
	curve := filepath.Join(dir, "loss.png")
	if err := losses.Draw(curve, name); err != nil {
		return err
	}
	s.Files = append(s.Files, curve)
	path := filepath.Join(dir, "summary.json")
	s.Files = append(s.Files, path)
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	if err := atomicfile.WriteBytes(path, append(b, '\n')); err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	return nil
}

func (s *summary) printJSON(w io.Writer) error {
	return printJSON(w, struct {
		Event string    `json:"event"`
		Stage string    `json:"stage"` // none: it is the run's own
		Time  time.Time `json:"time"`
		*summary
	}{"summary", "", time.Now(), s})
}

// print prints the summary as a table, and one of what was set aside.
func (s *summary) print(w io.Writer) {
	took := time.Duration(s.Seconds * float64(time.Second)).Round(100 * time.Millisecond)
	t := newTable(w, fmt.Sprintf("%s: %s in %s", s.Run, s.Result, took))
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 1, AutoMerge: true}})
	for _, l := range s.lines() {
		t.AppendRow(table.Row{l.Stage, l.Key, valueText(l.Value)})
	}
	t.AppendRow(table.Row{"", "peak memory", humanize.IBytes(uint64(s.PeakMemory))})
	for _, f := range s.Files {
		t.AppendRow(table.Row{"", "wrote", shortPath(f)})
	}
	t.Render()
	if len(s.SetAside) == 0 {
		return
	}
	t = newTable(w, fmt.Sprintf("set aside: %d", len(s.SetAside)))
	t.AppendHeader(table.Row{"stage", "item", "reason"})
	for _, a := range s.SetAside {
		t.AppendRow(table.Row{a.Stage, shortPath(a.Item), a.Reason})
	}
	t.Render()
}

// lines are those of the stages, with what was seen of the training stage's events.
func (s *summary) lines() []stageLine {
	lines := slices.DeleteFunc(slices.Clone(s.Stages), func(l stageLine) bool {
		path, ok := l.Value.(string)
		return ok && slices.Contains(s.Files, path) // listed as written
	})
	add := func(key, value string) {
		at := len(lines)
		for i, l := range lines {
			if l.Stage == s.trainer {
				at = i + 1
			}
		}
		lines = slices.Insert(lines, at, stageLine{s.trainer, key, value})
	}
	if s.StepTime > 0 {
		add("time a step", fmt.Sprintf("%.3g s", s.StepTime))
	}
	if v := s.Validation; v != nil {
		add("validation loss", fmt.Sprintf("%s at first, %s at last; predicting zero: %s", loss(v.First), loss(v.Last), loss(v.Zero)))
	}
	return lines
}

// valueText is how a value of a summary is printed.
func valueText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int:
		return humanize.Comma(int64(v))
	case int64:
		return humanize.Comma(v)
	case float64:
		return fmt.Sprintf("%.4g", v)
	}
	return fmt.Sprint(v)
}

// shortPath is a path as one would type it here: relative to the working
// folder where that is shorter.
func shortPath(path string) string {
	here, err := os.Getwd()
	if err != nil || !filepath.IsAbs(path) {
		return path
	}
	if rel, err := filepath.Rel(here, path); err == nil && len(rel) < len(path) {
		return rel
	}
	return path
}

func loss(v *float64) string {
	if v == nil {
		return "not finite"
	}
	return fmt.Sprintf("%.4f", *v)
}

func newTable(w io.Writer, title string) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Options.SeparateRows = false
	t.Style().Format.Header = 0
	t.SetTitle("%s", title)
	return t
}
