package examples_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/png"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Many samples go through two branches of latents and textembed: four stages
// that want a card which holds one of them at a time. None waits for another
// that waits for it.
func TestManySamplesOnASmallCard(t *testing.T) {
	t.Parallel()
	samples := 300
	if os.Getenv("LONGSHIP_LONG") != "" {
		samples = 10_000
	}
	p := newProject(t)
	for i := range samples {
		picture := image.NewGray(image.Rect(0, 0, 16, 16))
		binary.LittleEndian.PutUint32(picture.Pix, uint32(i))
		var b bytes.Buffer
		require.NoError(t, png.Encode(&b, picture))
		name := fmt.Sprintf("%c/%d", 'a'+i%2, i)
		p.write(name+".png", b.String())
		p.write(name+".txt", fmt.Sprint("number ", i))
	}
	p.write("fill.yaml", head+`
  - dataset:   {id: one, folder: ./a, resolution: [16]}
  - latents:   {id: one_latents, in: one}
  - dataset:   {id: two, folder: ./b, resolution: [16]}
  - textembed: {id: two_text, in: two, max_length: 20}
  - latents:   {id: two_latents, in: two_text}
  - textembed: {id: all_text, in: [one_latents, two_latents], max_length: 16}
`)
	// A card that is too small is refused with what latents needs; one of that
	// size, and a little for rounding, has no room for a text tower beside it.
	p.write("probe.yaml", head+`
  - dataset: {folder: ./a, resolution: [16]}
  - latents
`)
	o := p.run("run", "probe.yaml", "--set", "vram=1KiB")
	require.Equal(t, 1, o.code, o.all())
	need := regexp.MustCompile(`(\d+) KiB of the card are needed`).FindStringSubmatch(said(o))
	require.Len(t, need, 2, o.all())
	kib, err := strconv.Atoi(need[1])
	require.NoError(t, err)

	o = p.done("run", "fill.yaml", "--json", "--set", fmt.Sprintf("vram=%dKiB", kib+1))
	require.Equal(t, 4, strings.Count(o.stderr, "er loaded"), "each stage loads its model once")
	require.Equal(t, 4, strings.Count(o.stderr, "er unloaded"))
	s := o.summary(t)
	require.EqualValues(t, samples/2, s.number("one_latents.latents encoded"))
	require.EqualValues(t, samples/2, s.number("two_latents.latents encoded"))
	require.EqualValues(t, samples/2, s.number("two_text.text embeddings encoded"))
	require.EqualValues(t, samples, s.number("all_text.text embeddings encoded"))
	t.Logf("%d samples in %s", samples, o.took)
}
