package pipeline

import (
	"errors"
	"testing"
)

// FuzzParse reads any bytes as a pipeline: it is accepted or refused with faults
// that have places, and what is accepted survives its canonical form.
func FuzzParse(f *testing.F) {
	for _, src := range []string{
		full, "", "stages: [dataset]", "stages:\n  - dataset: &a {any: *a}\n", "a: &a [*a]\nstages: [*a]",
		"stages:\n  - dataset: {<<: [{steps: 1}, {lr: 1e-4}], steps: 0x10}\n", "name: ${NAME}\nstages: [{latents: {in: [dataset]}}]",
		"stages:\n  - dataset: {id: a, extra: {x: 1}, any: [1, ~, .nan, 2001-01-01, !!binary aGk=]}\n  - latents: {in: {samples: a.samples}}\n",
		"{stages: [{dataset: {folder: 'C:\\x', cache: \"\\\\\\\\nas\"}}]}", "? [a]\n: b", "---\n...\n---\n", "\xef\xbb\xbfstages: [dataset]",
		"stages: [{dataset: {ratio: 1e400, small: -0, lr: 0b1}}]", "%YAML 1.2\n---\nstages: [!!str dataset]",
	} {
		f.Add([]byte(src))
	}
	reg := stock(f)
	opts := Options{File: "f.yaml", Dir: f.TempDir(), Getenv: env}
	f.Fuzz(func(t *testing.T, src []byte) {
		p, err := reg.Parse(src, opts)
		if err != nil {
			var ce *ConfigError
			if !errors.As(err, &ce) || len(ce.Faults) == 0 {
				t.Fatalf("error %v is no ConfigError", err)
			}
			for _, fault := range ce.Faults {
				if fault.File != "f.yaml" || fault.Msg == "" {
					t.Fatalf("fault %+v", fault)
				}
			}
			return
		}
		again, err := reg.Parse(p.Env.Config, Options{Dir: opts.Dir})
		if err != nil {
			t.Fatalf("canonical form: %v\n%s", err, p.Env.Config)
		}
		if string(again.Env.Config) != string(p.Env.Config) {
			t.Fatalf("canonical forms differ:\n%s\n%s", p.Env.Config, again.Env.Config)
		}
	})
}

// FuzzSet does the same for overrides.
func FuzzSet(f *testing.F) {
	for _, set := range []string{"seed=3", "stages.train.steps=5", "stages.dataset.sizes=[16]", "stages.train.network.rank=-1", "a", "=", "stages..x=1",
		"model={path: x}", "stages.dataset.any=*x", "stages.dataset.any=&x [1]", "name=${X}", "stages.train=", "stages.dataset.any.0.b=1", "name=\x00"} {
		f.Add(set)
	}
	reg := stock(f)
	opts := Options{File: "f.yaml", Dir: f.TempDir()}
	f.Fuzz(func(t *testing.T, set string) {
		opts := opts
		opts.Set = []string{set}
		if _, err := reg.Parse([]byte(full), opts); err != nil {
			var ce *ConfigError
			if !errors.As(err, &ce) {
				t.Fatalf("error %v is no ConfigError", err)
			}
		}
	})
}
