package stages_test

import (
	"strings"
	"testing"
	"unicode"

	"go.uber.org/goleak"

	"longship/pipeline"
	"longship/plugins/plugintest"
	"longship/stages"
)

// The test program is a program of all stages too, when it is started as one.
func TestMain(m *testing.M) {
	if !plugintest.Served(stages.Builtin()...) {
		goleak.VerifyTestMain(m)
	}
}

// needed are the keys without which a stage cannot be made.
var needed = map[string]string{
	"dataset": "{folder: ./photos}",
	"cached":  "{list: run/dataset}",
}

// Every stage keeps the rules of stages: lifecycle, config, no leaks; and in a
// program of its own too, where what it sends and takes can cross to one.
func TestConformance(t *testing.T) {
	for _, f := range stages.Builtin() {
		t.Run(f.Type, func(t *testing.T) { plugintest.Conformance(t, f, needed[f.Type]) })
	}
}

// Every stage says what it is and what each of its keys means, in a few words
// and in one way.
func TestEveryKeyIsDocumented(t *testing.T) {
	words := func(t *testing.T, what, s string) {
		t.Helper()
		switch first, _, _ := strings.Cut(s, " "); {
		case s == "":
			t.Errorf("%s has no description: give it a `doc` tag", what)
		case s != strings.TrimSpace(s) || strings.HasSuffix(s, ".") || strings.Contains(s, "\n"):
			t.Errorf("%s: %q is not one line without a full stop", what, s)
		case strings.ToUpper(first) != first && unicode.IsUpper([]rune(first)[0]):
			t.Errorf("%s: %q does not begin with a small letter", what, s)
		}
	}
	for _, f := range stages.Builtin() {
		words(t, f.Type, f.Summary)
		for _, k := range f.Keys() {
			words(t, f.Type+"."+k.Path, k.Doc)
		}
	}
	for _, k := range pipeline.HeadKeys() {
		words(t, k.Path, k.Doc)
	}
}

// The stages are a registry: no type twice, none misnamed.
func TestRegistry(t *testing.T) {
	if _, err := pipeline.NewRegistry(stages.Builtin()...); err != nil {
		t.Error(err)
	}
}
