package pipeline

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValues(t *testing.T) {
	dir := t.TempDir()
	src := `
name: ${NAME}
seed: 18446744073709551615
vram: 23.5GiB
model: {path: ./flux, vae: C:\models\vae.safetensors}
defaults: &d {lr: 1e-4, fused: yes, network: {rank: 8}}
stages:
  - dataset:
      folder: sub/photos
      sizes: 512
      steps: ${STEPS}
      <<: *d
  - latents:
      cache: \\nas\cache
      lr: 1
      steps: 1e3
      ratio: .inf
      small: 0xff
      extra: {a: 1, b: "${NAME} $${X}", c: true}
      any: [1, {x: y}]
  - textembed: {id: words, folder: "../up", cache: , sizes: , any: , ratio: 0.5, network: {type: 7}}
`
	reg := stock(t)
	src = strings.Replace(src, "defaults: &d", "stages_defaults: &d", 1)
	_, err := reg.Parse([]byte(src), Options{File: "p.yaml", Dir: dir, Getenv: env})
	wantFaults(t, err, `p.yaml:6:1: unknown key "stages_defaults"`)

	src = strings.Replace(src, "stages_defaults: &d {lr: 1e-4, fused: yes, network: {rank: 8}}\n", "", 1)
	src = strings.Replace(src, "<<: *d", "<<: {lr: 1e-4, fused: yes, network: {rank: 8}}", 1)
	p, err := reg.Parse([]byte(src), Options{File: "p.yaml", Dir: dir, Getenv: env})
	if err != nil {
		t.Fatal(err)
	}
	if p.Env.Name != "env name" || p.Env.Seed != 1<<64-1 || p.Env.Dir != dir || p.Env.Output != filepath.Join(dir, "output") {
		t.Errorf("env %q %d %q %q", p.Env.Name, p.Env.Seed, p.Env.Dir, p.Env.Output)
	}
	if want := (Model{Path: Path(filepath.Join(dir, "flux")), VAE: `C:\models\vae.safetensors`}); p.Env.Model != want {
		t.Errorf("model %+v, want %+v", p.Env.Model, want)
	}
	d, l, w := config(t, p, "dataset"), config(t, p, "latents"), config(t, p, "words")
	half, inf := float32(0.5), l.Ratio
	l.Ratio = nil
	want := &fakeConfig{Folder: Path(filepath.Join(dir, "sub", "photos")), Cache: Path(filepath.Join(dir, "cache")), Sizes: []int{512},
		LR: 1e-4, Steps: 77, Fused: true, Network: network{"lora", 8}}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("dataset:\n%s", diff)
	}
	want = &fakeConfig{Cache: `\\nas\cache`, Sizes: []int{256}, LR: 1, Steps: 1000, Network: network{"lora", 16}, Small: 255,
		Extra: map[string]string{"a": "1", "b": "env name ${X}", "c": "true"}, Any: []any{1, map[string]any{"x": "y"}}}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Errorf("latents:\n%s", diff)
	}
	if inf == nil || *inf < 1e38 {
		t.Errorf("ratio %v, want infinity", inf)
	}
	want = &fakeConfig{Folder: Path(filepath.Join(filepath.Dir(dir), "up")), Cache: Path(filepath.Join(dir, "cache")), Sizes: []int{256}, Ratio: &half,
		LR: 1e-3, Steps: 10, Network: network{"7", 16}}
	if diff := cmp.Diff(want, w); diff != "" {
		t.Errorf("textembed:\n%s", diff)
	}
}

func env(name string) (string, bool) {
	v, ok := map[string]string{"NAME": "env name", "STEPS": "77"}[name]
	return v, ok
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      []string
	}{
		{"empty", "", []string{"p.yaml: the file is empty"}},
		{"only a comment", "# nothing\n", []string{"p.yaml: the file is empty"}},
		{"no mapping", "- dataset\n", []string{"p.yaml:1:1: a pipeline is a mapping"}},
		{"no stages", "name: x\n", []string{"p.yaml:1:1: `stages:` is missing"}},
		{"stages empty", "stages: []\n", []string{"p.yaml:1:9: the list is empty"}},
		{"stages null", "stages:\n", []string{"p.yaml:1:8: expected a list of stages"}},
		{"stages a mapping", "stages: {dataset: {}}\n", []string{"p.yaml:1:9: expected a list of stages, `- type: {…}`, not a mapping"}},
		{"broken syntax", "stages:\n  - dataset: {folder: x\n", []string{"p.yaml:2:1: YAML: "}},
		{"tab", "stages:\n\t- dataset\n", []string{"p.yaml:2:1: YAML: a tab cannot indent a line or start a value: use spaces"}},
		{"windows path in double quotes", "model: {path: \"C:\\models\"}\nstages: [dataset]\n", []string{"p.yaml:1:1: single quotes"}},
		{"not UTF-8", "name: x\nstages: [\xff]\n", []string{"p.yaml:2:1: YAML: the file is not UTF-8 text"}},
		{"two documents", "stages: [dataset]\n---\nstages: [dataset]\n", []string{"p.yaml:2:1: a second document begins here"}},
		{"head key", "nmae: x\nstages: [dataset]\n", []string{`p.yaml:1:1: unknown key "nmae"; did you mean "name"?`}},
		{"head values", "name: a/b\ndevice: gpu\nvram: much\noutput: ''\nseed: -1\nstages: [dataset]\n", []string{
			"p.yaml:1:7: cannot name files", "p.yaml:2:9: is not auto, cpu", "p.yaml:3:7: neither auto nor a size",
			"p.yaml:4:9: name a folder", "p.yaml:5:7: seed: expected a whole number of 64 bits, 0 or more, not the number -1"}},
		{"name too long", "name: " + strings.Repeat("x", 181) + "\nstages: [dataset]\n", []string{"p.yaml:1:7: name: it has 181 bytes"}},
		{"name of a device", "name: nul.v2\nstages: [dataset]\n", []string{`p.yaml:1:7: name: "nul.v2" is the name of a device`}},
		{"name with a control character", "name: \"a\\x7f\"\nstages: [dataset]\n", []string{"p.yaml:1:7: cannot name files"}},
		{"unknown anchor", "stages:\n  - dataset: {cache: *abc, folder: *a}\n", []string{"p.yaml:2:22: YAML: unknown anchor 'abc' referenced"}},
		{"stage type", "stages:\n  - datasets\n  - latent: {}\n", []string{
			`p.yaml:2:5: unknown stage type "datasets"; did you mean "dataset"?`, `p.yaml:3:5: unknown stage type "latent"; did you mean "latents"?`}},
		{"stage type like nothing", "stages:\n  - photoshop\n", []string{`p.yaml:2:5: unknown stage type "photoshop"; there are: dataset, latents`}},
		{"stage is a list", "stages:\n  - [dataset]\n", []string{"p.yaml:2:5: a stage is `- type` or `- type: {…}`, not a list"}},
		{"stage body is a text", "stages:\n  - dataset: photos\n", []string{`p.yaml:2:14: expected a mapping of its keys, not the text "photos"`}},
		{"keys not indented", "stages:\n  - dataset:\n    folder: x\n", []string{`p.yaml:3:5: "folder" stands beside the stage type "dataset"`}},
		{"unknown keys, all at once", "stages:\n  - dataset: {foldr: x, stesp: 3}\n  - latents:\n      network:\n        rnk: 4\n", []string{
			`p.yaml:2:15: unknown key "foldr"; did you mean "folder"?`, `p.yaml:2:25: unknown key "stesp"; did you mean "steps"?`,
			`p.yaml:5:9: network: unknown key "rnk"; did you mean "rank"?`}},
		{"types", "stages:\n  - dataset:\n      folder: [a]\n      sizes: [16, x]\n      lr: fast\n      steps: 1.5\n      fused: maybe\n      network: 3\n      extra: [1]\n      small: 256\n      ratio: {}\n", []string{
			"p.yaml:3:15: folder: expected a text, not a list", `p.yaml:4:19: sizes[1]: expected a whole number, not the text "x"`,
			`p.yaml:5:11: lr: expected a number, not the text "fast"`, "p.yaml:6:14: steps: expected a whole number, not the number 1.5",
			`p.yaml:7:14: fused: expected true or false, not the text "maybe"`, "p.yaml:8:16: network: expected a mapping of its keys, not the number 3",
			"p.yaml:9:14: extra: expected a mapping, not a list", "p.yaml:10:14: small: expected a whole number of 8 bits, 0 or more, not the number 256",
			"p.yaml:11:14: ratio: expected a number, not a mapping"}},
		{"key twice", "stages:\n  - dataset:\n      steps: 1\n      lr: 2\n      steps: 3\n", []string{`p.yaml:5:7: key "steps" is written twice; the first is at line 3`}},
		{"head key twice", "name: a\nname: b\nstages: [dataset]\n", []string{`p.yaml:2:1: key "name" is written twice`}},
		{"key is a list", "? [a]\n: 1\nstages: [dataset]\n", []string{"p.yaml:1:3: a key must be a plain word"}},
		{"validator", "stages:\n  - dataset:\n      sizes: [16, 17]\n      network:\n        rank: -1\n", []string{
			"p.yaml:3:19: stage dataset: sizes[1]: must be a multiple of 16", "p.yaml:5:15: stage dataset: network.rank: must be at least 0"}},
		{"variable missing", "name: ${NAME}\nstages:\n  - dataset: {folder: \"${NO}/x/${ALSO_NO}\"}\n", []string{
			"p.yaml:3:23: environment variable NO is not set", "p.yaml:3:23: environment variable ALSO_NO is not set"}},
		{"variable wrong", "stages:\n  - dataset: {folder: \"${no such}\", cache: \"${open\"}\n", []string{
			`p.yaml:2:23: "${no such}" is not a variable`, `p.yaml:2:44: "${open" is not a variable`}},
		{"id twice", "stages:\n  - dataset\n  - dataset\n", []string{`p.yaml:3:5: id "dataset" belongs to another stage already (line 2)`}},
		{"id", "stages:\n  - dataset: {id: a.b}\n", []string{`p.yaml:2:5: id "a.b": letters`}},
		{"id is a list", "stages:\n  - dataset: {id: [a]}\n", []string{"p.yaml:2:19: id: expected a name, not a list"}},
		{"merge of a text", "stages:\n  - dataset: {<<: x}\n", []string{"p.yaml:2:19: `<<` merges mappings"}},
		{"merged key is checked where it stands", "stages:\n  - dataset: &d\n      stps: 1\n  - latents: {<<: *d}\n", []string{
			`p.yaml:3:7: unknown key "stps"`}},
		{"alias inside itself", "stages: &s\n  - dataset: {any: *s}\n", []string{"p.yaml:2:20: nested too deeply"}},
		{"file and wiring at once", "seed: x\nstages:\n  - dataset: {stps: 1}\n  - prefetch\n", []string{
			"p.yaml:1:7: seed", `p.yaml:3:15: unknown key "stps"`, "p.yaml:4:5: input weights (*pipeline.weights) has no source: put a quantize stage before it",
			"p.yaml:4:5: stage prefetch needs latent: put a latents stage between dataset and prefetch",
			"p.yaml:4:5: stage prefetch needs text: put a textembed stage between dataset and prefetch"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(t, c.src)
			wantFaults(t, err, c.want...)
		})
	}
}

func TestAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("stages:\n  - dataset:\n      any:\n        - &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 12 {
		n, m := string(rune('a'+i)), string(rune('b'+i))
		b.WriteString("        - &" + m + "0 [" + strings.Repeat("*"+n+"0, ", 9) + "*" + n + "0]\n")
	}
	_, err := parse(t, b.String())
	var ce *ConfigError
	if !errors.As(err, &ce) || len(ce.Faults) != 1 || !strings.Contains(err.Error(), "too large: more than 100000 values") {
		t.Errorf("error %v", err)
	}
}

func TestDeepNesting(t *testing.T) {
	for _, depth := range []int{100, 5000, 200_000} {
		_, err := parse(t, "stages: [{dataset: {any: "+strings.Repeat("[", depth)+strings.Repeat("]", depth)+"}}]")
		var ce *ConfigError
		if !errors.As(err, &ce) {
			t.Errorf("depth %d: error %v", depth, err)
		}
	}
}

func TestOverrides(t *testing.T) {
	p := mustParse(t, full, "seed=7", "name=a=b", "stages.train.lr=1e-5", "stages.train.network.rank=32", "stages.dataset.sizes=[16, 32]",
		"stages.dataset.sizes.1=48", "stages.quantize.steps=3", "stages.dataset.folder=", "stages.latents.folder=${NAME}", "model.path=/m")
	if p.Env.Seed != 7 || p.Env.Name != "a=b" || p.Env.Model.Path != "/m" {
		t.Errorf("env %d %q %q", p.Env.Seed, p.Env.Name, p.Env.Model.Path)
	}
	if c := config(t, p, "train"); c.LR != 1e-5 || c.Network.Rank != 32 || c.Network.Type != "lora" || c.Steps != 12 {
		t.Errorf("train %+v", c)
	}
	if c := config(t, p, "dataset"); len(c.Sizes) != 2 || c.Sizes[1] != 48 || c.Folder != "" {
		t.Errorf("dataset %+v", c)
	}
	if c := config(t, p, "quantize"); c.Steps != 3 {
		t.Errorf("quantize %+v", c)
	}
	if c := config(t, p, "latents"); filepath.Base(string(c.Folder)) != "${NAME}" {
		t.Errorf("latents %+v", c)
	}
}

func TestOverrideFaults(t *testing.T) {
	for set, want := range map[string]string{
		"seed":                         "expected key=value",
		"=3":                           "expected key=value",
		"sed=3":                        `unknown key "sed"; did you mean "seed"?`,
		"seed=x":                       `seed: expected a whole number, 0 or more, not the text "x"`,
		"device=tpu":                   "is not auto, cpu",
		"stages=[]":                    "name a stage and a key",
		"stages.train=3":               "name a stage and a key",
		"stages.trian.steps=3":         `there is no stage "trian"; did you mean "train"?`,
		"stages.train.stesp=3":         `unknown key "stesp"; did you mean "steps"?`,
		"stages.train.steps=many":      `steps: expected a whole number, not the text "many"`,
		"stages.train.network.rnk=1":   `network: unknown key "rnk"; did you mean "rank"?`,
		"stages.train.network.rank=-1": "stage train: network.rank: must be at least 0",
		"stages.train.steps.x=1":       `there is no "x" in the number 12`,
		"stages.train.folder=[a":       "is not YAML",
		"stages.train.in=nowhere":      `there is no earlier stage "nowhere"`,
	} {
		t.Run(set, func(t *testing.T) {
			_, err := parse(t, full, set)
			wantFaults(t, err, "--set "+set+": "+want)
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "my run.yaml")
	if err := os.WriteFile(file, []byte(full), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := stock(t).Load(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Env.Name != "my run" || p.Env.Dir != dir {
		t.Errorf("name %q, dir %q", p.Env.Name, p.Env.Dir)
	}
	if _, err := stock(t).Load(filepath.Join(dir, "none.yaml"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// The canonical form is a pipeline file that gives the same pipeline, wherever
// the folder has moved.
func TestCanonical(t *testing.T) {
	p := mustParse(t, full, "stages.dataset.ratio=0.1", "stages.train.extra={b: x, a: y}")
	q, err := stock(t).Parse(p.Env.Config, Options{Dir: p.Env.Dir})
	if err != nil {
		t.Fatalf("%v\n%s", err, p.Env.Config)
	}
	if diff := cmp.Diff(string(p.Env.Config), string(q.Env.Config)); diff != "" {
		t.Error(diff)
	}
	moved, err := stock(t).Parse(p.Env.Config, Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(p.Env.Config), string(moved.Env.Config)); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{"folder: photos", "cache: cache", "in:\n", "samples: [textembed]", "weights: [quantize]", "state: [train]", "rank: 16"} {
		if !strings.Contains(string(p.Env.Config), want) {
			t.Errorf("%q is missing in\n%s", want, p.Env.Config)
		}
	}
}
