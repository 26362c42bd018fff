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

func TestTensorsThatAreGone(t *testing.T) {
	store, err := cache.Open(t.Context(), t.TempDir(), cache.Options{})
	require.NoError(t, err)
	defer store.Close()
	ref := func(name string) cache.Ref {
		return cache.Ref{Kind: "text", Key: cache.NewKey(name).Sum(), DType: "f32", Shape: []int{1, 1}}
	}
	require.NoError(t, store.Put(t.Context(), ref("there"), make([]byte, 4)))
	a := port.Sample{ID: "a", Latent: ref("there"), Text: ref("there"), LatentCache: "x", TextCache: "x"}
	b := a
	b.ID, b.TextDropped = "b", ref("gone")
	stores := map[string]*cache.Store{"x": store}
	require.NoError(t, present(t.Context(), stores, []*port.Sample{&a}))
	err = present(t.Context(), stores, []*port.Sample{&a, &b})
	require.ErrorContains(t, err, "1 tensors are not in cache x any more, the first is "+ref("gone").String()+" of sample b")
}

func TestOverlap(t *testing.T) {
	content := func(s string) cache.Key { return cache.HashBytes([]byte(s)) }
	train := []*port.Sample{{ID: "a", Content: content("1")}, {ID: "b"}}
	held := []*port.Sample{{ID: "c", Content: content("2")}, {ID: "d", Content: content("1")}, {ID: "e"}}
	require.Equal(t, []string{"d"}, overlap(train, held))
}
