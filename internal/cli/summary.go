package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"

	"longship/internal/hostmem"
	"longship/internal/losslog"
	"longship/pipeline"
)

// summary is what a run tells at its end, also written as summary.json.
type summary struct {
	Run        string      `json:"run"`
	Result     string      `json:"result"` // done, interrupted or failed
	Error      string      `json:"error,omitempty"`
	Seconds    float64     `json:"seconds"`
	Stages     []stageLine `json:"stages"`
	SetAside   []asideLine `json:"set_aside"`
	Steps      int         `json:"steps"` // of this process
	StepTime   float64     `json:"seconds_per_step"`
	Validation *validation `json:"validation,omitempty"`
	PeakMemory int64       `json:"peak_resident_bytes"`
	Files      []string    `json:"files"`
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
		Run: r.Name, Result: "done", Seconds: r.Duration.Seconds(), Steps: o.steps, Files: o.saved,
		PeakMemory: hostmem.Peak(), SetAside: []asideLine{}, Stages: []stageLine{},
	}
	switch {
	case errors.Is(err, pipeline.ErrInterrupted):
		s.Result = "interrupted"
	case err != nil:
		s.Result, s.Error = "failed", err.Error()
	}
	for _, e := range r.Summary {
		s.Stages = append(s.Stages, stageLine(e))
	}
	for _, a := range r.SetAside {
		s.SetAside = append(s.SetAside, asideLine(a))
	}
	if o.steps > 0 {
		s.StepTime = o.stepTime.Seconds() / float64(o.steps)
	}
	if o.first != nil {
		s.Validation = &validation{First: o.first.Loss, Last: o.last.Loss, Zero: o.last.Zero}
	}
	return s
}

// write writes summary.json, and the loss curve where there are losses, into
// the run's folder, where there is one.
func (s *summary) write(dir, name string, losses *losslog.Log) error {
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	if len(losses.Entries()) > 0 {
		curve := filepath.Join(dir, "loss.png")
		if err := losses.Draw(curve, name); err != nil {
			return err
		}
		s.Files = append(s.Files, curve)
	}
	path := filepath.Join(dir, "summary.json")
	s.Files = append(s.Files, path)
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	return nil
}

func (s *summary) printJSON(w io.Writer) error {
	b, err := json.Marshal(struct {
		Event string `json:"event"`
		*summary
	}{"summary", s})
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", b)
	}
	return err
}

func (s *summary) print(w io.Writer) {
	t := newTable(w, fmt.Sprintf("%s: %s in %s", s.Run, s.Result, time.Duration(s.Seconds*float64(time.Second)).Round(100*time.Millisecond)))
	for _, l := range s.Stages {
		t.AppendRow(table.Row{l.Stage, l.Key, fmt.Sprint(l.Value)})
	}
	if s.Steps > 0 {
		t.AppendRow(table.Row{"train", "steps", fmt.Sprintf("%d, %.3g s/it", s.Steps, s.StepTime)})
	}
	if v := s.Validation; v != nil {
		t.AppendRow(table.Row{"train", "validation loss", fmt.Sprintf("%s at first, %s at last; predicting zero: %s", loss(v.First), loss(v.Last), loss(v.Zero))})
	}
	t.AppendRow(table.Row{"", "peak memory", humanize.IBytes(uint64(s.PeakMemory))})
	for _, f := range s.Files {
		t.AppendRow(table.Row{"", "wrote", f})
	}
	t.Render()
	if len(s.SetAside) == 0 {
		return
	}
	t = newTable(w, fmt.Sprintf("set aside: %d", len(s.SetAside)))
	t.AppendHeader(table.Row{"stage", "item", "reason"})
	for _, a := range s.SetAside {
		t.AppendRow(table.Row{a.Stage, a.Item, a.Reason})
	}
	t.Render()
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
