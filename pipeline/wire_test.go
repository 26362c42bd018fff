package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// edges lists the edges of a pipeline: "a.out -> b.in", input by input.
func edges(p *Pipeline) []string {
	var list []string
	for _, n := range p.nodes {
		for _, e := range n.edges {
			list = append(list, fmt.Sprintf("%s -> %s", end{e.from, e.out}, end{n, e.in}))
		}
	}
	return list
}

func TestWiring(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      []string
	}{
		{"a list is a line", full, []string{
			"dataset.samples -> latents.samples", "latents.samples_out -> textembed.samples",
			"textembed.samples_out -> prefetch.samples", "quantize.weights -> prefetch.weights",
			"prefetch.batches -> train.batches", "train.state -> checkpoint.state", "train.steps -> report.steps"}},
		{"a cache alone needs no mark", "stages: [dataset, latents]", []string{"dataset.samples -> latents.samples"}},
		{"another source", "stages:\n  - dataset\n  - latents\n  - textembed: {in: dataset}\n  - latents: {id: l2, in: [latents, textembed]}", []string{
			"dataset.samples -> latents.samples", "dataset.samples -> textembed.samples",
			"latents.samples_out -> l2.samples", "textembed.samples_out -> l2.samples"}},
		{"sources merge in the order of in", "stages:\n  - dataset\n  - dataset: {id: b}\n  - latents: {in: [b, dataset]}", []string{
			"b.samples -> latents.samples", "dataset.samples -> latents.samples"}},
		{"by port", "stages:\n  - quantize\n  - quantize: {id: q2}\n  - dataset\n  - latents\n  - textembed\n  - prefetch: {in: {weights: [quantize, q2.weights]}}", []string{
			"dataset.samples -> latents.samples", "latents.samples_out -> textembed.samples", "textembed.samples_out -> prefetch.samples",
			"quantize.weights -> prefetch.weights", "q2.weights -> prefetch.weights"}},
		{"the short form leaves other inputs alone", "stages:\n  - quantize\n  - dataset\n  - latents\n  - textembed\n  - prefetch: {in: textembed}", []string{
			"dataset.samples -> latents.samples", "latents.samples_out -> textembed.samples", "textembed.samples_out -> prefetch.samples",
			"quantize.weights -> prefetch.weights"}},
		{"a message feeds many, a lender lends to many", full + "  - report: {id: r2}\n  - checkpoint: {id: c2, in: train}", []string{
			"dataset.samples -> latents.samples", "latents.samples_out -> textembed.samples",
			"textembed.samples_out -> prefetch.samples", "quantize.weights -> prefetch.weights",
			"prefetch.batches -> train.batches", "train.state -> checkpoint.state", "train.steps -> report.steps",
			"train.steps -> r2.steps", "train.state -> c2.state"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := edges(mustParse(t, c.src))
			if !slices.Equal(got, c.want) {
				t.Errorf("edges\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestWiringFaults(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      []string
	}{
		{"no source", "stages:\n  - latents\n", []string{"p.yaml:2:5: stage latents: input samples (pipeline.sample) has no source: put a dataset or latents or textembed stage before it"}},
		{"source stands later", "stages:\n  - latents\n  - dataset\n", []string{
			"p.yaml:2:5: stage latents: input samples (pipeline.sample) has no source: stage dataset (line 3) gives it, but stands later; move it before stage latents"}},
		{"two datasets are never silently one", "stages:\n  - dataset\n  - dataset: {id: extra}\n  - latents\n", []string{
			"p.yaml:2:5: output samples of stage dataset feeds nothing, although stage latents (line 4) takes its pipeline.sample from extra: write `in: [dataset, extra]` there"}},
		{"nor are two branches", "stages:\n  - dataset\n  - latents\n  - dataset: {id: b}\n  - latents: {id: lb}\n  - textembed\n  - quantize\n  - prefetch\n", []string{
			"p.yaml:3:5: output samples_out of stage latents feeds nothing, although stage lb (line 5) takes its pipeline.sample from b: write `in: [latents, b]` there"}},
		{"nor two that nobody reads", "stages:\n  - dataset\n  - dataset: {id: extra}\n", []string{
			"p.yaml:2:5: output samples of stage dataset feeds nothing, although only the last output of its type may stay open and stage extra (line 3) gives pipeline.sample too: name both in the `in:` of a later stage, `in: [dataset, extra]`"}},
		{"loose end of a stage with several inputs", "stages:\n  - quantize\n  - quantize: {id: q2}\n  - dataset\n  - latents\n  - textembed\n  - prefetch\n", []string{
			"p.yaml:2:5: output weights of stage quantize feeds nothing, although stage prefetch (line 7) takes its *pipeline.weights from q2: write `in: {weights: [quantize, q2]}` there"}},
		{"loose lender", "stages:\n  - quantize\n  - dataset\n  - latents\n  - textembed\n  - prefetch\n  - train\n  - quantize: {id: q2}\n  - prefetch: {id: p2, in: textembed}\n  - train: {id: t2}\n  - checkpoint\n", []string{
			"p.yaml:7:5: output steps of stage train feeds nothing, although only the last output of its type may stay open and stage t2 (line 10) gives pipeline.step too",
			"p.yaml:7:5: output state of stage train feeds nothing, although stage checkpoint (line 11) takes its *pipeline.state from t2: write `in: train` there"}},
		{"needs", "stages:\n  - dataset\n  - latents\n  - quantize\n  - prefetch\n", []string{"p.yaml:5:5: stage prefetch needs text: put a textembed stage between latents and prefetch"}},
		{"needs, of one of two sources", "stages:\n  - dataset\n  - dataset: {id: b}\n  - latents: {in: dataset}\n  - textembed: {in: [latents, b]}\n  - quantize\n  - prefetch\n", []string{
			"p.yaml:7:5: stage prefetch needs latent: put a latents stage between textembed and prefetch"}},
		{"needs what stands later", "stages:\n  - dataset\n  - latents\n  - quantize\n  - prefetch\n  - textembed: {in: latents}\n", []string{
			"p.yaml:5:5: stage prefetch needs text: stage textembed (line 6) adds it, but stands later; move it between latents and prefetch"}},
		{"needs what was passed by", "stages:\n  - dataset\n  - latents\n  - textembed\n  - quantize\n  - prefetch: {in: latents}\n", []string{
			"p.yaml:4:5: output samples_out of stage textembed feeds nothing, although stage prefetch (line 6) takes its pipeline.sample from latents: write `in: {samples: [textembed, latents]}` there",
			"p.yaml:6:5: stage prefetch needs text: stage textembed (line 4) adds it, but stage prefetch takes its samples from latents"}},
		{"unknown source", "stages:\n  - dataset\n  - latents: {in: datast}\n", []string{`p.yaml:3:19: in: there is no earlier stage "datast"; did you mean "dataset"?`}},
		{"later source", "stages:\n  - dataset\n  - latents: {in: textembed}\n  - textembed\n", []string{"p.yaml:3:19: in: textembed does not stand before stage latents: only earlier stages can be named"}},
		{"itself", "stages:\n  - dataset\n  - latents: {in: [dataset, latents]}\n", []string{"p.yaml:3:29: in: latents does not stand before stage latents"}},
		{"source of another type", "stages:\n  - dataset\n  - quantize\n  - latents: {in: [dataset, quantize]}\n", []string{
			"p.yaml:4:29: in: quantize: none of its outputs (weights: *pipeline.weights) fits an input of stage latents (samples: pipeline.sample)"}},
		{"source of another type, by port", "stages:\n  - dataset\n  - quantize\n  - latents: {in: {samples: quantize}}\n", []string{
			"p.yaml:4:29: in: quantize: none of its outputs (weights: *pipeline.weights) fits input samples of stage latents (pipeline.sample)"}},
		{"no such input", "stages:\n  - dataset\n  - latents: {in: {sample: dataset}}\n", []string{`p.yaml:3:20: stage latents has no input "sample"; did you mean "samples"?`}},
		{"no inputs at all", "stages:\n  - dataset\n  - dataset: {id: b, in: dataset}\n", []string{
			"p.yaml:2:5: output samples of stage dataset feeds nothing",
			"p.yaml:3:26: in: dataset: none of its outputs (samples: pipeline.sample) fits an input of stage b (none)"}},
		{"no such output", "stages:\n  - dataset\n  - latents: {in: dataset.sample}\n", []string{`p.yaml:3:19: in: dataset.sample: stage dataset has no output "sample"; did you mean "samples"?`}},
		{"named twice", "stages:\n  - dataset\n  - latents: {in: [dataset, dataset]}\n", []string{"p.yaml:3:29: in: dataset is named twice"}},
		{"empty in, short", "stages:\n  - dataset\n  - latents: {in: []}\n", []string{"p.yaml:3:19: in: the list is empty: name a stage"}},
		{"empty in", "stages:\n  - dataset\n  - latents: {in: {samples: []}}\n", []string{"p.yaml:3:5: stage latents: input samples (pipeline.sample) has no source: its `in:` is empty"}},
		{"in is a mapping of mappings", "stages:\n  - dataset\n  - latents: {in: {samples: {a: b}}}\n", []string{
			"p.yaml:3:5: stage latents: input samples (pipeline.sample) has no source", "p.yaml:3:29: in: expected the id of an earlier stage"}},
		{"a handle feeds one", "stages:\n  - quantize\n  - dataset\n  - latents\n  - textembed\n  - prefetch\n  - prefetch: {id: p2, in: {samples: textembed, weights: quantize}}\n", []string{
			"p.yaml:6:5: output batches of stage prefetch feeds nothing",
			"p.yaml:7:5: stage p2: output weights of stage quantize goes to stage prefetch already (line 6): a *pipeline.weights is handed over, so it feeds one input only"}},
		{"one source of what has no end", "stages:\n  - quantize\n  - quantize: {id: q2}\n  - dataset\n  - latents\n  - textembed\n  - prefetch: {in: {weights: quantize}}\n  - prefetch: {id: p2, in: {weights: q2}}\n  - train: {in: [prefetch, p2]}\n", []string{
			"p.yaml:9:5: stage train: input batches takes one source only"}},
		{"one lender", full + "  - quantize: {id: q2}\n  - prefetch: {id: p2, in: textembed}\n  - train: {id: t2}\n  - checkpoint: {id: c2, in: [train, t2]}\n", []string{
			"p.yaml:14:5: stage c2: input state takes one source only"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(t, c.src)
			wantFaults(t, err, c.want...)
		})
	}
}

// What no stage takes cannot be named in an `in:`.
func TestLooseEndThatNobodyTakes(t *testing.T) {
	reg, err := NewRegistry(fakeFactory("source", func(s *fake) { s.ports = []Port{NewOut[step]("steps")} }))
	if err != nil {
		t.Fatal(err)
	}
	_, err = reg.Parse([]byte("stages:\n  - source\n  - source: {id: b}\n"), Options{File: "p.yaml"})
	wantFaults(t, err, "p.yaml:2:5: stage b (line 3) gives pipeline.step too: no stage takes it, so there can be one only")
}
