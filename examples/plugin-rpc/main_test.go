package main

import (
	"os"
	"testing"

	"longship/pipeline/stagetest"
	"longship/plugins/plugintest"
	"longship/stages/port"
)

func TestMain(m *testing.M) { os.Exit(plugintest.Main(m, factory())) }

func TestConformance(t *testing.T) { plugintest.Conformance(t, factory(), `{max_words: 5}`) }

// The stage does the same in process and in a program.
func TestClean(t *testing.T) {
	for _, f := range []struct {
		name string
		run  func() *stagetest.Collector[port.Sample]
	}{
		{"in process", func() *stagetest.Collector[port.Sample] {
			got := stagetest.Collect[port.Sample]("cleaned")
			stagetest.Run(t, factory(), `{remove: [watermark]}`, captions(), got)
			return got
		}},
		{"in a program", func() *stagetest.Collector[port.Sample] {
			got := stagetest.Collect[port.Sample]("cleaned")
			stagetest.Run(t, plugintest.Remote(t, "clean_captions"), `{remove: [watermark]}`, captions(), got)
			return got
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			got := f.run().Values
			if len(got) != 1 || got[0].Caption != "a cat, on a wall" {
				t.Errorf("got %v", got)
			}
		})
	}
}

func captions() stagetest.Option {
	return stagetest.Feed("samples",
		port.Sample{ID: "a", Caption: "a  cat, watermark, https://example.org/x ,A CAT,on a wall"},
		port.Sample{ID: "b", Caption: "watermark"})
}
