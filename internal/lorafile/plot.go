package lorafile

import (
	"fmt"
	"math"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"longship/cache/atomicfile"
)

func root(x float64) float64 { return math.Sqrt(max(0, x)) }

// PlotResized draws the kept energy of every pair, in the model's order, as a PNG.
func PlotResized(path string, report []Resized) error {
	p := plot.New()
	p.Title.Text = "energy kept by pair"
	p.X.Label.Text, p.Y.Label.Text = "pair, in the model's order", "share of |ΔW|² kept"
	p.Y.Min, p.Y.Max = 0, 1
	values := make(plotter.Values, len(report))
	for i, r := range report {
		values[i] = r.Kept
	}
	bars, err := plotter.NewBarChart(values, vg.Points(max(1, 560/float64(max(1, len(report)))-0.5)))
	if err != nil {
		return fmt.Errorf("plot %s: %w", path, err)
	}
	bars.LineStyle.Width = 0
	p.Add(plotter.NewGrid(), bars)
	picture, err := p.WriterTo(10*vg.Inch, 4*vg.Inch, "png")
	if err != nil {
		return fmt.Errorf("plot %s: %w", path, err)
	}
	return atomicfile.Write(path, func(f *os.File) error {
		_, err := picture.WriteTo(f)
		return err
	})
}
