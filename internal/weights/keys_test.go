package weights

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/golden"
)

// The key tables of the published models follow from the configs that their
// shapes give, and the other way round.
func TestKeyTables(t *testing.T) {
	var totals map[string]struct {
		Tensors int
		Params  int64
	}
	golden.JSON(t, &totals, "keys", "totals.json")
	files, err := filepath.Glob(golden.Path("keys", "transformer-*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	layout := Layout{Diffusers: true}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "transformer-"), ".json")
		t.Run(name, func(t *testing.T) {
			var table map[string][]int
			golden.JSON(t, &table, "keys", filepath.Base(file))
			c, err := layout.infer(table)
			require.NoError(t, err)
			require.Equal(t, totals[name].Params, c.Params())
			require.Len(t, table, totals[name].Tensors)

			left := maps.Clone(table)
			for _, target := range layout.Targets(c) {
				rows := 0
				for _, p := range target.Parts {
					shape, ok := table[p.Tensor]
					require.True(t, ok, "%s asks for %s", target.Name, p.Tensor)
					require.Equal(t, target.Shape[1:], shape[1:], p.Tensor)
					if p.Hi == 0 {
						p.Hi = shape[0]
					}
					rows += p.Hi - p.Lo
					delete(left, p.Tensor)
				}
				require.Equal(t, target.Shape[0], rows, target.Name)
			}
			require.Empty(t, left, "keys that nothing asks for")
		})
	}
}
