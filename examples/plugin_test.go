package examples_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The stage of examples/plugin-rpc in a pipeline: its program is started, found
// by check and graph, pinned, and its captions are what is encoded.
func TestPluginProgram(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	cleaner := p.path("cleaner")
	if runtime.GOOS == "windows" {
		cleaner += ".exe"
	}
	out, err := exec.Command("go", "build", "-o", cleaner, "longship/examples/plugin-rpc").CombinedOutput()
	require.NoError(t, err, string(out))
	program, err := os.ReadFile(cleaner)
	require.NoError(t, err)
	sum := sha256.Sum256(program)
	p.write("photos/cat.txt", "a  cat, watermark, https://example.org/cat.jpg ,A CAT,on a wall")
	p.write("photos/brick.txt", "watermark")
	pipeline := func(sha string) string {
		return fmt.Sprintf("plugins: [{path: %q, sha256: %s, restart: 1}]\n", cleaner, sha) + head + `
  - dataset: {folder: ./photos, resolution: [64], default_caption: a thing}
  - clean_captions: {remove: [watermark]}
  - latents
  - textembed: {max_length: 48}` + training
	}
	p.write("clean.yaml", pipeline(hex.EncodeToString(sum[:])))
	require.Contains(t, p.done("check", "clean.yaml").stdout, "no fault found")
	require.Contains(t, p.done("graph", "clean.yaml").stdout, "clean_captions")
	o := p.done("run", "clean.yaml", "--json")
	require.Equal(t, []int{1, 2}, o.steps(t))
	require.Positive(t, o.summary(t).number("clean_captions.captions changed"))
	require.Contains(t, o.stdout, "nothing is left of its caption")

	o = p.run("check", "clean.yaml", "--set", "stages.clean_captions.max_word=3")
	require.Equal(t, 2, o.code, o.all())
	require.Contains(t, said(o), `did you mean "max_words"`)

	p.write("pinned.yaml", pipeline(strings.Repeat("00", 32)))
	o = p.run("run", "pinned.yaml")
	require.Equal(t, 2, o.code, o.all())
	require.Contains(t, said(o), "not the program that was pinned")
}
