package examples_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image/jpeg"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/cache"
	"longship/internal/lorafile"
	"longship/pipeline"
	"longship/stages"
	"longship/stages/port"
)

// colours is a stage of one's own in place of latents, thirty lines: it writes the
// colours of a photo's cells where the autoencoder would write its latent.
type colours struct {
	set pipeline.Settings
	cfg *coloursConfig
	in  *pipeline.In[port.Sample]
	out *pipeline.Out[port.Sample]
}
type coloursConfig struct {
	Cache pipeline.Path `yaml:"cache" doc:"folder of the cache"`
}

func newColours(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
	in := pipeline.NewIn[port.Sample]("samples")
	return &colours{set, cfg.(*coloursConfig), in, pipeline.NewOut[port.Sample]("encoded", pipeline.Forwards(in), pipeline.Adds("latent"))}, nil
}
func (s *colours) Ports() []pipeline.Port { return []pipeline.Port{s.in, s.out} }
func (s *colours) Run(ctx context.Context) error {
	store, err := cache.Shared(ctx, s.set.Env, string(s.cfg.Cache))
	if err != nil {
		return err
	}
	return pipeline.Each(ctx, s.set, s.in, func(ctx context.Context, v port.Sample) error {
		h, w := v.Bucket.H/16, v.Bucket.W/16
		latent, err := cells(string(v.Path), h, w)
		v.Latent = cache.Ref{Key: cache.NewKey("colours/1").Key(v.Content).Int(h, w).Sum(), DType: "f32", Shape: []int{16, h, w}, Kind: "latent"}
		v.LatentCache = store.Dir()
		if err = errors.Join(err, store.Put(ctx, v.Latent, latent)); err != nil {
			return err
		}
		return s.out.Send(ctx, v)
	})
}

// cells returns the colours of h x w cells of a JPEG as float32 [16, h, w], of
// which three channels are used.
func cells(path string, h, w int) (latent []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	photo, err := jpeg.Decode(file)
	if err != nil {
		return nil, err
	}
	for channel := range 16 {
		for i := range h * w {
			r, g, b, _ := photo.At(photo.Bounds().Dx()*(i%w)/w, photo.Bounds().Dy()*(i/w)/h).RGBA()
			v := [16]uint32{r, g, b}[channel]
			latent = binary.LittleEndian.AppendUint32(latent, math.Float32bits(float32(v)/32768-1))
		}
	}
	return latent, nil
}

// The quickstart runs with a stage of one's own under the name of a built-in one.
func TestOwnStage(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	factories := stages.Builtin()
	for i := range factories {
		if factories[i].Type == "latents" {
			factories[i] = pipeline.Factory{Type: "latents", Summary: "colours of cells", New: newColours, Default: func() any { return &coloursConfig{Cache: "cache"} }}
		}
	}
	registry, err := pipeline.NewRegistry(factories...)
	require.NoError(t, err)
	loaded, err := registry.Load(p.path("pipeline.yaml"), pipeline.Options{Set: []string{"stages.train.steps=20", "stages.dataset.resolution=[64]", "stages.textembed.max_length=48"}})
	require.NoError(t, err)
	_, err = loaded.Check(t.Context())
	require.NoError(t, err)
	var first, last float64
	result, err := loaded.Run(t.Context(), pipeline.RunOptions{OnEvent: func(e pipeline.Event) {
		if e.Event == "validation" {
			if last = e.Data["loss"].(float64); first == 0 {
				first = last
			}
		}
	}})
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(result.Summary), "latents encoded")
	require.Positive(t, first)
	require.Less(t, last, first)
	report, err := lorafile.Inspect(p.path(adapter))
	require.NoError(t, err)
	require.NotEmpty(t, report.Modules)
}
