package flux2_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/flux2"
	"longship/internal/golden"
)

// A config.json that is accepted can be written and read again, and stands for a
// model that has weights.
func FuzzParseConfig(f *testing.F) {
	for _, dir := range []string{"tiny-dev", "tiny-klein", "tiny-hd128"} {
		text, err := os.ReadFile(golden.Path(dir, "transformer", "config.json"))
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"num_layers": null, "axes_dims_rope": [], "mlp_ratio": 1e300}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := flux2.ParseConfig(text)
		if err != nil {
			return
		}
		again, err := flux2.ParseConfig(c.JSON())
		require.NoError(t, err)
		require.Equal(t, c, again)
		if c.Blocks() > 64 {
			return
		}
		require.Positive(t, c.Params())
	})
}
