package examples_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// training is the back half of the pipelines below.
const training = `
  - quantize
  - prefetch: {offload: 1}
  - train: {steps: 2, network: {rank: 4}}
  - checkpoint
`

const head = "device: cpu\nmodel: {path: ./model}\nstages:\n"

// A pipeline that only fills a cache needs no mark, and one that starts from
// that cache needs neither images nor encoders.
func TestFromTheCacheAlone(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write("fill.yaml", head+`
  - dataset:   {folder: ./photos, resolution: [64], caption_dropout_rate: 0.5, validation: 2}
  - latents
  - textembed: {max_length: 48}
`)
	p.write("train.yaml", head+"  - cached: {list: fill/textembed, carries: [latent, text]}"+training)
	o := p.done("run", "fill.yaml", "--json")
	latents, texts := encoded(t, o)
	require.Equal(t, 12, latents)
	require.Equal(t, 13, texts, "the empty caption too")
	require.NoDirExists(t, p.path("output"))

	p.write("all.yaml", head+`
  - dataset:   {folder: ./photos, resolution: [64], caption_dropout_rate: 0.5, validation: 2}
  - latents
  - textembed: {max_length: 48}`+training)
	o = p.done("run", "all.yaml", "--json", "--set", "name=cat")
	latents, texts = encoded(t, o)
	require.Zero(t, latents+texts)

	for _, gone := range []string{"photos", "model/vae", "model/text_encoder", "model/tokenizer"} {
		require.NoError(t, os.RemoveAll(p.path(gone)))
	}
	o = p.done("run", "train.yaml", "--json", "--set", "name=cat", "--set", "output=other")
	require.Len(t, o.events(t, "validation"), 2)
	require.True(t, bytes.Equal(p.read("output/cat/cat.safetensors"), p.read("other/cat/cat.safetensors")), "the adapter differs")

	o = p.run("run", "train.yaml", "--json", "--set", "stages.cached.list=fill/nothing", "--set", "output=third")
	require.Equal(t, 2, o.code, o.all())
	require.Contains(t, said(o), "fill/nothing")
}

// Two datasets are merged where the file says so, and are an error where it
// does not; what they give can go into caches of their own.
func TestTwoDatasetsTwoCaches(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	require.NoError(t, os.Mkdir(p.path("more"), 0o755))
	for _, name := range []string{"cat.jpg", "cat.txt", "brick.jpg"} {
		require.NoError(t, os.Rename(p.path("photos/"+name), p.path("more/"+name)))
	}
	datasets := `
  - dataset: {id: photos, folder: ./photos, resolution: [64]}
  - dataset: {id: extra, folder: ./more, resolution: [48, 64], num_repeats: 2, default_caption: a thing}
`
	encoders := `
  - latents:   {cache: ./one, IN}
  - textembed: {cache: ./two, max_length: 48}
`
	p.write("merged.yaml", head+datasets+strings.ReplaceAll(encoders, "IN", "in: [photos, extra]")+training)
	o := p.done("run", "merged.yaml", "--json")
	s := o.summary(t)
	require.Equal(t, 14.0, s.number("latents.latents encoded"))
	require.Equal(t, 10.0, s.number("photos.images used"))
	require.Equal(t, 2.0, s.number("extra.images used"))
	one, two := p.done("cache", "ls", "--json", "one"), p.done("cache", "ls", "--json", "two")
	require.Equal(t, 14, strings.Count(one.stdout, "\n"))
	require.Equal(t, 12, strings.Count(two.stdout, "\n"))

	p.write("apart.yaml", head+datasets+strings.ReplaceAll(encoders, ", IN", "")+training)
	o = p.run("run", "apart.yaml")
	require.Equal(t, 2, o.code, o.all())
	require.Contains(t, said(o), "photos")
	require.Contains(t, said(o), "in: ")
	require.Contains(t, said(o), "apart.yaml:")

	// Two branches, each with its own encoder, joined at prefetch.
	p.write("branches.yaml", head+`
  - dataset:   {id: photos, folder: ./photos, resolution: [64]}
  - latents:   {id: small, in: photos, cache: ./one}
  - textembed: {id: small_text, in: small, cache: ./one, max_length: 48}
  - dataset:   {id: extra, folder: ./more, resolution: [96], default_caption: a thing}
  - latents:   {id: large, in: extra, cache: ./three}
  - textembed: {id: large_text, in: large, cache: ./three, max_length: 48}
  - quantize
  - prefetch: {in: {samples: [small_text, large_text]}}
  - train: {steps: 2, network: {rank: 4}}
  - checkpoint
`)
	o = p.done("run", "branches.yaml", "--json")
	s = o.summary(t)
	require.Equal(t, 10.0, s.number("small.latents found in the cache"))
	require.Equal(t, 2.0, s.number("large.latents encoded"))
	require.Equal(t, []int{1, 2}, o.steps(t))
}

// Each command on what the quickstart makes, by its exit code and a word of
// what it prints.
func TestCommands(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write("faults.yaml", "name: a/b\nstages:\n  - dataset: {foldr: ./photos}\n  - train\n")
	p.done(quick("pipeline.yaml")...)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{0, "no fault found", []string{"check", "resume.yaml"}},
		{2, "faults.yaml:3:15", []string{"check", "resume.yaml", "faults.yaml"}},
		{0, "flowchart", []string{"graph", "pipeline.yaml"}},
		{0, "digraph", []string{"graph", "--format", "dot", "pipeline.yaml"}},
		{2, "svg", []string{"graph", "--format", "svg", "pipeline.yaml"}},
		{0, "quantize", []string{"stages"}},
		{0, "rank: 16", []string{"stages", "train"}},
		{0, "$schema", []string{"stages", "--json-schema"}},
		{2, "nothing", []string{"stages", "nothing"}},
		{0, "tensors", []string{"cache", "ls", "cache"}},
		{0, "tensors", []string{"cache", "verify", "cache"}},
		{0, "removed", []string{"cache", "gc", "--unlisted", "cache"}},
		{2, "--restart", []string{"check", "pipeline.yaml"}}, // its rank is not that of what is there
		{2, "no cache in", []string{"cache", "ls", "photos"}},
		{0, "double_blocks.0.img_attn.qkv", []string{"lora", "inspect", adapter}},
		{1, "cat.jpg", []string{"lora", "inspect", "photos/cat.jpg"}},
		{2, "train.stpes", []string{"run", "pipeline.yaml", "--set", "stages.train.stpes=3"}},
		{2, "nowhere.yaml", []string{"run", "nowhere.yaml"}},
		{2, "unknown", []string{"ru", "pipeline.yaml"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			o := p.run(c.args...)
			require.Equal(t, c.code, o.code, o.all())
			require.Contains(t, o.stdout+o.stderr, c.says)
			if c.code != 0 {
				require.Contains(t, o.stderr, c.says, "errors belong on standard error")
			}
		})
	}
	o := p.done(append(quick("pipeline.yaml"), "--restart")...)
	latents, texts := encoded(t, o)
	require.Zero(t, latents+texts, "cleaning has removed what a list names")
}
