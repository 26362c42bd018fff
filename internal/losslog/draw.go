package losslog

import (
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"longship/cache/atomicfile"
)

// Draw writes a PNG of the losses: every step pale, their running mean over 20
// steps, the validation loss and the loss of predicting zero.
func (l *Log) Draw(path, title string) error {
	var steps, valid, zero plotter.XYs
	for _, e := range l.entries {
		if e.Loss == nil {
			continue
		}
		p := plotter.XY{X: float64(e.Step), Y: *e.Loss}
		switch e.Event {
		case "step":
			steps = append(steps, p)
		case "validation":
			valid = append(valid, p)
			if e.Zero != nil {
				zero = append(zero, plotter.XY{X: p.X, Y: *e.Zero})
			}
		}
	}
	if len(steps)+len(valid) == 0 {
		return nil
	}
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "step"
	p.Y.Label.Text = "loss"
	p.Add(plotter.NewGrid())
	for _, c := range []struct {
		name  string
		xy    plotter.XYs
		color color.Color
		width vg.Length
		dash  bool
	}{
		{"step", steps, color.RGBA{R: 170, G: 190, B: 220, A: 255}, vg.Points(0.7), false},
		{"mean of 20 steps", smooth(steps, 20), color.RGBA{R: 31, G: 90, B: 170, A: 255}, vg.Points(1.8), false},
		{"validation", valid, color.RGBA{R: 200, G: 70, B: 30, A: 255}, vg.Points(2), false},
		{"predicting zero", zero, color.RGBA{R: 110, G: 110, B: 110, A: 255}, vg.Points(1), true},
	} {
		if len(c.xy) == 0 {
			continue
		}
		line, err := plotter.NewLine(c.xy)
		if err != nil {
			return fmt.Errorf("loss curve: %w", err)
		}
		line.Color, line.Width = c.color, c.width
		if c.dash {
			line.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
		}
		p.Add(line)
		p.Legend.Add(c.name, line)
	}
	p.Legend.Top = true
	w, err := p.WriterTo(8*vg.Inch, 4.5*vg.Inch, "png")
	if err != nil {
		return fmt.Errorf("loss curve: %w", err)
	}
	err = atomicfile.Write(path, func(f *os.File) error {
		_, err := w.WriteTo(f)
		return err
	})
	if err != nil {
		return fmt.Errorf("loss curve: %w", err)
	}
	return nil
}

// smooth returns the mean of the last n points at each point.
func smooth(xy plotter.XYs, n int) plotter.XYs {
	out := make(plotter.XYs, len(xy))
	var sum float64
	for i, p := range xy {
		sum += p.Y
		if i >= n {
			sum -= xy[i-n].Y
		}
		out[i] = plotter.XY{X: p.X, Y: sum / float64(min(i+1, n))}
	}
	return out
}
