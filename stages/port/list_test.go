package port

import (
	"context"
	"math"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"

	"longship/cache"
)

func TestSamplesAreRecorded(t *testing.T) {
	ctx := context.Background()
	store, err := cache.Open(ctx, t.TempDir(), cache.Options{})
	require.NoError(t, err)
	defer store.Close()
	key := func(s string) cache.Key { return cache.HashBytes([]byte(s)) }
	want := []Sample{
		{ID: "a@512", Path: []byte("/x/\xff.png"), Caption: "é", Content: cache.HashBytes([]byte("a")), Bucket: Bucket{W: 512, H: 512}, Repeats: 2, Weight: math.Inf(1),
			Latent: cache.Ref{Key: key("latent")}, Text: cache.Ref{Key: key("text")}, TextDropped: cache.Ref{Key: key("dropped")}},
		{ID: "b@512", Validation: true, References: []Reference{{Path: []byte("/r"), Size: Bucket{W: 64, H: 64}, Content: key("r"), Latent: cache.Ref{Key: key("latent of r")}}},
			Text: cache.Ref{Key: key("text")}},
	}
	require.NoError(t, PutSamples(ctx, store, "run/photos", want))
	got, err := GetSamples(ctx, store, "run/photos")
	require.NoError(t, err)
	require.Equal(t, want, got)

	list, err := store.GetList(ctx, "run/photos")
	require.NoError(t, err)
	require.Equal(t, []cache.Key{want[0].Content, key("latent"), key("text"), key("dropped"), key("r"), key("latent of r")}, list.Refs)

	_, err = GetSamples(ctx, store, "another")
	require.ErrorIs(t, err, cache.ErrNotFound)
	newer, err := cbor.Marshal(sampleList{listVersion + 1, want})
	require.NoError(t, err)
	for name, data := range map[string][]byte{"newer": newer, "broken": []byte("\xff\xff")} {
		require.NoError(t, store.PutList(ctx, name, cache.List{Data: data}))
		_, err = GetSamples(ctx, store, name)
		require.ErrorIs(t, err, cache.ErrNotFound, name)
	}
}
