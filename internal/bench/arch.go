package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"longship/internal/flux2"
	"longship/internal/tinymodel"
)

// Arch is a model's shape with the length of its prompts.
type Arch struct {
	Name       string
	Config     flux2.Config
	TextTokens int
}

// archs are the known models, by name.
var archs = map[string]func() (c flux2.Config, textTokens int){
	"flux2-dev": func() (flux2.Config, int) { return flux2.Default(), 512 },
	"flux2-klein-9b": func() (flux2.Config, int) {
		c := flux2.Default()
		c.DoubleBlocks, c.SingleBlocks, c.Heads, c.TextDim, c.Guidance = 8, 24, 32, 12288, false
		return c, 512
	},
	"flux2-klein-4b": func() (flux2.Config, int) {
		c := flux2.Default()
		c.DoubleBlocks, c.SingleBlocks, c.Heads, c.TextDim, c.Guidance = 5, 20, 24, 7680, false
		return c, 512
	},
	"tiny": func() (flux2.Config, int) { return tinymodel.Config(tinymodel.Dev), 16 },
}

// Archs lists the names of the known models.
func Archs() []string { return slices.Sorted(maps.Keys(archs)) }

// ArchOf returns a model's shape by its name.
func ArchOf(name string) (Arch, error) {
	make, ok := archs[name]
	if !ok {
		return Arch{}, fmt.Errorf("%q is no architecture; there are %s", name, strings.Join(Archs(), ", "))
	}
	c, tokens := make()
	return Arch{Name: name, Config: c, TextTokens: tokens}, nil
}
