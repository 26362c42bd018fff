package pipeline

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompose(t *testing.T) {
	byType := map[string]Factory{}
	for _, f := range stockFactories() {
		byType[f.Type] = f
	}
	dir := t.TempDir()
	cfg := byType["dataset"].Default().(*fakeConfig)
	cfg.Folder = "photos"
	p, err := Compose(&Env{Dir: dir, Seed: 3}, nil, Part{Factory: byType["dataset"], Config: cfg}, Part{Factory: byType["latents"]})
	if err != nil {
		t.Fatal(err)
	}
	if p.Env.Name != "run" || p.Env.Device != "auto" || p.Env.Output != filepath.Join(dir, "output") || p.Env.Seed != 3 ||
		config(t, p, "dataset").Folder != Path(filepath.Join(dir, "photos")) {
		t.Errorf("env %q %q %q %d, folder %q", p.Env.Name, p.Env.Device, p.Env.Output, p.Env.Seed, config(t, p, "dataset").Folder)
	}
	if !strings.Contains(string(p.Env.Config), "folder: photos") {
		t.Errorf("config:\n%s", p.Env.Config)
	}
	if _, err := p.Run(context.Background(), RunOptions{}); err != nil {
		t.Error(err)
	}

	bad := byType["dataset"].Default().(*fakeConfig)
	bad.Network.Rank = -1
	_, err = Compose(&Env{Name: "a/b"}, nil, Part{Factory: byType["dataset"], Config: bad}, Part{Factory: byType["prefetch"], In: map[string][]string{"samples": {"datset"}}})
	wantFaults(t, err, ": cannot name files", ": stage dataset: network.rank: must be at least 0",
		`: in: there is no earlier stage "datset"; did you mean "dataset"?`, ": input weights (*pipeline.weights) has no source")
	if _, err := Compose(&Env{}, nil, Part{Factory: byType["dataset"], Config: fakeConfig{}}); err == nil || !strings.Contains(err.Error(), "is a pipeline.fakeConfig, not a *pipeline.fakeConfig") {
		t.Errorf("error %v", err)
	}
}

func TestRegistryFaults(t *testing.T) {
	good := fakeFactory("good", func(*fake) {})
	reserved := good
	reserved.Type, reserved.Default = "reserved", func() any {
		return &struct {
			In string `yaml:"in"`
		}{}
	}
	value := good
	value.Type, value.Default = "value", func() any { return fakeConfig{} }
	empty := Factory{Type: "empty"}
	camel := good
	camel.Type = "camelCase"
	_, err := NewRegistry(good, good, reserved, value, empty, camel)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`factory 2, "good": the type is registered already`, `factory 3, "reserved": its config has the key "in", which is reserved`,
		`factory 4, "value": its Default returns pipeline.fakeConfig, not a pointer to a struct`, `factory 5, "empty": it lacks Default or New`,
		`factory 6, "camelCase": the type is not lower_snake_case`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
}
