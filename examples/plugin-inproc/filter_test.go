package main

import (
	"testing"

	"longship/pipeline/stagetest"
	"longship/stages/port"
)

func TestConformance(t *testing.T) { stagetest.Conformance(t, factory(), `{min_side: 10}`) }

func TestFilter(t *testing.T) {
	got := stagetest.Collect[port.Sample]("filtered")
	stagetest.Run(t, factory(), `{min_side: 100, max_aspect: 2}`, got, stagetest.Feed("samples",
		port.Sample{ID: "small", Width: 99, Height: 150},
		port.Sample{ID: "least", Width: 100, Height: 150},
		port.Sample{ID: "longest", Width: 400, Height: 200},
		port.Sample{ID: "long", Width: 401, Height: 200}))
	var ids []string
	for _, s := range got.Values {
		ids = append(ids, s.ID)
	}
	if len(ids) != 2 || ids[0] != "least" || ids[1] != "longest" {
		t.Errorf("passed %v, want least and longest", ids)
	}
}
