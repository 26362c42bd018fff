package cached

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/cache"
	"longship/pipeline/stagetest"
	"longship/stages/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) { stagetest.Conformance(t, Factory(), "{list: run/photos}") }

func TestRun(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	store, err := cache.Open(ctx, filepath.Join(dir, "cache"), cache.Options{})
	require.NoError(t, err)
	want := []port.Sample{
		{ID: "photos/a.png@512", Path: []byte("/gone/\xff.png"), Content: cache.HashBytes([]byte("a")), Caption: "a dog"},
		{ID: "photos/b.png@512", Validation: true},
	}
	require.NoError(t, port.PutSamples(ctx, store, "run/photos", want))
	require.NoError(t, store.Close())

	got := stagetest.Collect[port.Sample]("samples")
	outcome := stagetest.Run(t, Factory(), "{list: run/photos}", stagetest.Dir(dir), got)
	require.Equal(t, want, got.Values)
	require.EqualValues(t, 2, outcome.Summary()["samples"])
}

func TestUnknownListIsNamed(t *testing.T) {
	outcome := stagetest.Try(t, Factory(), "{list: run/photos}")
	require.ErrorIs(t, outcome.Err, cache.ErrNotFound)
	require.ErrorContains(t, outcome.Err, `"run/photos"`)
}

func TestConfigFaults(t *testing.T) {
	err := (&Config{}).Validate()
	require.ErrorContains(t, err, "cache: ")
	require.ErrorContains(t, err, "list: ")
}
