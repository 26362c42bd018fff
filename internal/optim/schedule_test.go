package optim

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"longship/internal/golden"
)

func TestSchedulesMatchReference(t *testing.T) {
	var cases []struct {
		Name          string
		Warmup, Total int
		BaseLR        float64 `json:"base_lr"`
		LR            []float64
	}
	golden.JSON(t, &cases, "golden", "lr_schedules.json")
	compared := map[string]bool{}
	for _, c := range cases {
		if !slices.Contains(Schedules, c.Name) {
			continue
		}
		compared[c.Name] = len(c.LR) > 0
		t.Run(fmt.Sprintf("%s/%d of %d", c.Name, c.Warmup, c.Total), func(t *testing.T) {
			s := Schedule{Name: c.Name, Base: c.BaseLR, Warmup: c.Warmup, Total: c.Total}
			for k, want := range c.LR {
				if got := s.LR(k); math.Abs(got-want) > 1e-6*c.BaseLR {
					t.Errorf("after %d steps: %v, want %v", k, got, want)
				}
			}
		})
	}
	for _, name := range Schedules {
		if !compared[name] {
			t.Errorf("the reference has no %s", name)
		}
	}
}
