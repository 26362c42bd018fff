package examples_test

import (
	"encoding/json"
	"image/png"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/internal/lorafile"
)

// The quickstart as it is shipped: it trains on at least eight photos within a
// minute and a GiB, writes the adapter and the curve, and its validation loss
// ends at least 40 % below its start and below the loss of predicting zero.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	o := p.done("run", "pipeline.yaml", "--json")

	losses := o.events(t, "validation")
	require.GreaterOrEqual(t, len(losses), 2, o.all())
	first, last := losses[0], losses[len(losses)-1]
	t.Logf("validation loss %.4f to %.4f, predicting zero %.4f, in %s, %s of all cores", first.number("loss"), last.number("loss"), last.number("zero"), o.took, o.cpu)
	require.Less(t, last.number("loss"), 0.6*first.number("loss"))
	require.Less(t, last.number("loss"), last.number("zero"))
	require.Zero(t, first.number("step"))
	if !raceDetector {
		require.Less(t, o.cpu, 2*time.Minute, "a minute on two cores")
	}

	s := o.summary(t)
	require.GreaterOrEqual(t, s.number("dataset.images used"), 8.0)
	require.Less(t, s.number("peak_resident_bytes"), float64(1<<30))
	require.Empty(t, s["set_aside"])
	require.Len(t, o.steps(t), int(last.number("step")))

	report, err := lorafile.Inspect(p.path(adapter))
	require.NoError(t, err)
	require.NotEmpty(t, report.Modules)
	for _, m := range report.Modules {
		require.Positive(t, m.Norm, "%s is not trained", m.Name)
	}
	curve, err := os.Open(p.path("output/quickstart/loss.png"))
	require.NoError(t, err)
	defer curve.Close()
	_, err = png.Decode(curve)
	require.NoError(t, err)
	var written map[string]any
	require.NoError(t, json.Unmarshal(p.read("output/quickstart/summary.json"), &written))
	require.Equal(t, "done", written["result"])
}
