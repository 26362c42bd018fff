// Package plugintest checks that a stage keeps what every stage promises, in
// process and in a program of its own. The test program is that program too:
//
//	func TestMain(m *testing.M) { os.Exit(plugintest.Main(m, mystage.Factory())) }
//	func TestMine(t *testing.T) { plugintest.Conformance(t, mystage.Factory(), `{size: 3}`) }
package plugintest

import (
	"os"
	"testing"

	"longship/pipeline"
	"longship/pipeline/stagetest"
	"longship/plugins/host"
	"longship/plugins/proto"
	"longship/plugins/sdk"
)

// Main runs the tests; started by Conformance, it serves the stages instead.
func Main(m *testing.M, factories ...pipeline.Factory) int {
	if Served(factories...) {
		return 0
	}
	return m.Run()
}

// Served serves the stages if the test program was started for that, until it is
// to end. It is Main for a TestMain that does more.
func Served(factories ...pipeline.Factory) bool {
	hello := proto.Handshake()
	if os.Getenv(hello.MagicCookieKey) != hello.MagicCookieValue {
		return false
	}
	sdk.Serve(factories...)
	return true
}

// Conformance runs stagetest.Conformance over the stage in process and, where
// all of its ports can cross, over the same stage in a program. config is a YAML
// mapping of the keys without which the stage cannot be made; head adds lines to
// the pipeline's head. The stage has to be among those that Main was given.
func Conformance(t *testing.T, f pipeline.Factory, config string, head ...string) {
	t.Helper()
	t.Run("in process", func(t *testing.T) { stagetest.Conformance(t, f, config, head...) })
	t.Run("in a program", func(t *testing.T) {
		ports, err := f.Ports()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ports {
			if !p.Message {
				t.Skipf("port %s hands its values over in memory, so the stage stays in process", p.Name)
			}
		}
		stagetest.Conformance(t, Remote(t, f.Type), config, head...)
	})
}

// Remote returns the factory of a stage of this test program, started once more
// as a program of stages; it ends with the test.
func Remote(t *testing.T, typ string) pipeline.Factory {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs := &host.Host{}
	t.Cleanup(func() {
		if err := programs.Close(); err != nil {
			t.Errorf("end the program: %v", err)
		}
	})
	set := stagetest.Settings(t, stagetest.Env(t), "programs")
	factories, err := programs.Factories(pipeline.Program{Path: pipeline.Path(self)}, set.Log)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range factories {
		if f.Type == typ {
			return f
		}
	}
	t.Fatalf("the program has no stage %q: give its factory to plugintest.Main", typ)
	return pipeline.Factory{}
}
