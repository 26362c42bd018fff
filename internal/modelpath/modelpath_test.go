package modelpath

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/pipeline"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"hf/vae/config.json", "hf/text_encoder/config.json", "bfl/flux2-dev.safetensors", "bfl/ae.safetensors"} {
		at := filepath.Join(dir, filepath.FromSlash(p))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, nil, 0o644))
	}
	path := func(p string) pipeline.Path { return pipeline.Path(filepath.Join(dir, filepath.FromSlash(p))) }

	for name, c := range map[string]struct {
		find  func(pipeline.Model) (string, error)
		model pipeline.Model
		want  string
		err   string
	}{
		"vae of a folder":                 {VAE, pipeline.Model{Path: path("hf")}, "hf/vae", ""},
		"vae beside a single file":        {VAE, pipeline.Model{Path: path("bfl/flux2-dev.safetensors")}, "bfl/ae.safetensors", ""},
		"vae by its key":                  {VAE, pipeline.Model{Path: path("hf"), VAE: path("bfl/ae.safetensors")}, "bfl/ae.safetensors", ""},
		"text encoder of a folder":        {TextEncoder, pipeline.Model{Path: path("hf")}, "hf/text_encoder", ""},
		"a part that is missing":          {Tokenizer, pipeline.Model{Path: path("hf")}, "", "model.tokenizer: no tokenizer in " + filepath.Join(dir, "hf") + " (looked for tokenizer)"},
		"a key that names nothing":        {VAE, pipeline.Model{VAE: path("nowhere")}, "", "model.vae: stat " + filepath.Join(dir, "nowhere")},
		"a model path that names nothing": {VAE, pipeline.Model{Path: path("nowhere")}, "", "model.path: stat " + filepath.Join(dir, "nowhere")},
		"a transformer":                   {Transformer, pipeline.Model{Path: path("hf")}, "hf", ""},
		"no transformer":                  {Transformer, pipeline.Model{Path: path("nowhere")}, "", "model.path: stat " + filepath.Join(dir, "nowhere")},
		"no name of a transformer":        {Transformer, pipeline.Model{VAE: path("hf")}, "", "model.path: no transformer"},
		"no model at all":                 {VAE, pipeline.Model{}, "", "model.vae: no autoencoder: name it, or set model.path"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.find(c.model)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.ErrorAs(t, err, new(*pipeline.HeadError))
				return
			}
			require.NoError(t, err)
			require.Equal(t, string(path(c.want)), got)
		})
	}
}
