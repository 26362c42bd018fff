package prefetch

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/cache"
	"longship/gpu/memory"
	"longship/pipeline/stagetest"
	"longship/stages/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) { stagetest.Conformance(t, Factory(), "") }

// Which of two samples of one id a step would take is nothing that an order
// could say.
func TestSampleTwice(t *testing.T) {
	a := port.Sample{ID: "photos/a.png@512"}
	o := stagetest.Try(t, Factory(), "", stagetest.Feed("samples", a, port.Sample{ID: "photos/b.png@512"}, a), stagetest.Feed[*memory.WeightSet]("weights"))
	require.ErrorContains(t, o.Err, "sample photos/a.png@512 comes twice")
}

func TestNothingToTrainOn(t *testing.T) {
	o := stagetest.Try(t, Factory(), "", stagetest.Feed("samples", port.Sample{ID: "a", Validation: true}),
		stagetest.Feed("weights", &memory.WeightSet{Stop: func() error { return nil }}), stagetest.Collect[*port.Batch]("batches"))
	require.ErrorContains(t, o.Err, "no sample to train on: the dataset gave 1, all for validation")
}

func TestTensorsOfAnotherModel(t *testing.T) {
	good := port.Sample{ID: "a", Latent: cache.Ref{Shape: []int{128, 4, 4}}, Text: cache.Ref{Shape: []int{512, 96}}}
	w := widths{latent: 128, text: 96}
	require.NoError(t, w.fit([]*port.Sample{&good}))
	latent, text, none := good, good, good
	latent.Latent.Shape = []int{64, 4, 4}
	text.Text.Shape = []int{512, 64}
	none.Text = cache.Ref{}
	require.ErrorContains(t, w.fit([]*port.Sample{&good, &latent}), "sample a: its latent has the shape [64 4 4]")
	require.ErrorContains(t, w.fit([]*port.Sample{&text}), "its text embedding has the shape [512 64] and the transformer takes rows of 96")
	require.ErrorContains(t, w.fit([]*port.Sample{&none}), "its text embedding has the shape []")
}
