package textembed_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/cache"
	"longship/gpu"
	"longship/internal/golden"
	"longship/internal/mistral"
	"longship/internal/texttower"
	"longship/internal/vae"
	"longship/pipeline"
	"longship/stages/latents"
	"longship/stages/port"
	"longship/stages/textembed"
)

// TestTurnsOnASmallCard sends 10,000 samples through latents and textembed on a
// budget that holds one of them at a time. Images and captions repeat, so that
// hits, misses and waiting are mixed without hours of encoding.
func TestTurnsOnASmallCard(t *testing.T) {
	const samples, different = 10_000, 40
	dir := t.TempDir()
	list := make([]port.Sample, samples)
	for i := range different {
		m := image.NewGray(image.Rect(0, 0, 16, 16))
		m.SetGray(i%16, i/16, color.Gray{Y: 255})
		var b bytes.Buffer
		require.NoError(t, png.Encode(&b, m))
		path := filepath.Join(dir, fmt.Sprintf("%d.png", i))
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
		for k := i; k < samples; k += different {
			list[k] = port.Sample{
				ID: fmt.Sprint(k), Path: []byte(path), Content: cache.HashBytes(b.Bytes()), Alpha: "drop", Bucket: port.Bucket{W: 16, H: 16},
				Caption: fmt.Sprintf("picture %d", i*7%different), Dropout: 0.1,
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := runStages(t, ctx, dir, fmt.Sprintf("vram: %d\nmodel: {path: %s}", oneAtATime(t), golden.Path("tiny-dev")),
		"  - latents: {cache: ./cache}\n  - textembed: {cache: ./cache, max_length: 16}\n", list)
	require.Len(t, got, samples)
	for i, s := range got {
		require.Equal(t, list[i].ID, s.ID, "order")
		require.False(t, s.Latent.IsZero() || s.Text.IsZero() || s.TextDropped.IsZero())
	}
}

// runStages sends samples through stages on the CPU; head and stages are YAML.
func runStages(t *testing.T, ctx context.Context, dir, head, stages string, samples []port.Sample) (got []port.Sample) {
	t.Helper()
	none := func() any { return &struct{}{} }
	reg, err := pipeline.NewRegistry(latents.Factory(), textembed.Factory(),
		pipeline.Factory{Type: "feed", Default: none, New: func(pipeline.Settings, any) (pipeline.Stage, error) {
			return &feed{samples, pipeline.NewOut[port.Sample]("samples")}, nil
		}},
		pipeline.Factory{Type: "drain", Default: none, New: func(set pipeline.Settings, _ any) (pipeline.Stage, error) {
			return &drain{set, &got, pipeline.NewIn[port.Sample]("samples", pipeline.Needs("text"))}, nil
		}})
	require.NoError(t, err)
	src := "name: test\ndevice: cpu\n" + head + "\nstages:\n  - feed: {}\n" + stages + "  - drain: {}\n"
	p, err := reg.Parse([]byte(src), pipeline.Options{Dir: dir})
	require.NoError(t, err)
	_, err = p.Run(ctx, pipeline.RunOptions{})
	require.NoError(t, err)
	return got
}

// oneAtATime returns a budget that fits either stage's share and not both.
func oneAtATime(t *testing.T) int64 {
	v, err := vae.Open(golden.Path("tiny-dev", "vae"))
	require.NoError(t, err)
	defer v.Close()
	w, err := texttower.Open(golden.Path("tiny-dev", "text_encoder"), nil, mistral.Family())
	require.NoError(t, err)
	defer w.Close()
	text, err := w.DeviceBytes(gpu.Info{Kind: "cpu"}, texttower.Options{QType: "bf8", Tokens: 16, Batch: 4})
	require.NoError(t, err)
	return max(text, v.EncoderBytes(0, [2]int{16, 16}))
}

type feed struct {
	samples []port.Sample
	out     *pipeline.Out[port.Sample]
}

func (f *feed) Ports() []pipeline.Port { return []pipeline.Port{f.out} }
func (f *feed) Run(ctx context.Context) error {
	for _, s := range f.samples {
		if err := f.out.Send(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

type drain struct {
	set pipeline.Settings
	got *[]port.Sample
	in  *pipeline.In[port.Sample]
}

func (d *drain) Ports() []pipeline.Port { return []pipeline.Port{d.in} }
func (d *drain) Run(ctx context.Context) error {
	return pipeline.Each(ctx, d.set, d.in, func(_ context.Context, s port.Sample) error {
		*d.got = append(*d.got, s)
		return nil
	})
}
