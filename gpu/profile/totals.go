package profile

import (
	"slices"
	"time"
)

// totals are sums over steps.
type totals struct {
	steps    int
	launches int64
	halves   [2]halfTotals // forward, backward
}

// halfTotals are sums over the halves of one kind.
type halfTotals struct {
	time, waiting time.Duration
	lanes         []laneTotals // one for each Lane
}

type laneTotals struct {
	name     string
	busy     time.Duration
	bytes    float64
	from, to time.Duration // without a copy at the half's beginning and at its end
}

// add adds a step; all copies that overlap it are among those the lanes have read.
func (t *totals) add(s *step, lanes []*Lane) {
	t.steps++
	t.launches += s.launches
	for i, h := range s.halves {
		end := s.ended
		if i+1 < len(s.halves) {
			end = s.halves[i+1].begin
		}
		sum := &t.halves[0]
		if h.backward {
			sum = &t.halves[1]
		}
		sum.time += end - h.begin
		for k := range s.waits {
			sum.waiting += s.waits[k].overlap(h.begin, end)
		}
		for k, l := range lanes {
			if k == len(sum.lanes) {
				sum.lanes = append(sum.lanes, laneTotals{name: l.name})
			}
			sum.lanes[k].add(l.read, h.begin, end)
		}
	}
}

// add adds what lies of the copies in a half. The time before the first and
// behind the last is told apart: what is needed around the turns of a step is in
// the ring already, and no schedule could copy then.
func (l *laneTotals) add(copies []span, begin, end moment) {
	first, last := end, begin
	for i := range copies {
		p := &copies[i]
		d := p.overlap(begin, end)
		if d == 0 {
			continue
		}
		l.busy += d
		l.bytes += float64(p.bytes) * float64(d) / float64(p.end-p.begin)
		first, last = min(first, p.begin), max(last, p.end)
	}
	if first == end { // none
		l.from += end - begin
		return
	}
	l.from += max(0, first-begin)
	l.to += max(0, end-last)
}

// tracedTotals are sums over traced steps.
type tracedTotals struct {
	steps         int
	time, waiting time.Duration
	families      map[string]*familyTotals
}

type familyTotals struct {
	calls int
	time  time.Duration
}

func (t *tracedTotals) add(s *step) {
	if t.families == nil {
		t.families = map[string]*familyTotals{}
	}
	begin := s.halves[0].begin
	t.steps++
	t.time += s.ended - begin
	for i := range s.waits {
		t.waiting += s.waits[i].overlap(begin, s.ended)
	}
	for i := range s.kernels {
		k := &s.kernels[i]
		name := Family(k.name)
		f := t.families[name]
		if f == nil {
			f = &familyTotals{}
			t.families[name] = f
		}
		f.calls++
		f.time += k.end - k.begin
	}
}

// list returns the families in the order of Families.
func (t *tracedTotals) list() (out []FamilyTime) {
	if t.steps == 0 {
		return nil
	}
	n := float64(t.steps)
	for _, name := range slices.Concat(Families, []string{Copying}) {
		if f := t.families[name]; f != nil {
			out = append(out, FamilyTime{Family: name, Calls: float64(f.calls) / n, Seconds: f.time.Seconds() / n,
				Share: ratio(f.time.Seconds(), t.time.Seconds())})
		}
	}
	return out
}
