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
	for _, c := range cases {
		if !slices.Contains(Schedules, c.Name) {
			continue
		}
		t.Run(fmt.Sprintf("%s/%d of %d", c.Name, c.Warmup, c.Total), func(t *testing.T) {
			s := Schedule{Name: c.Name, Base: c.BaseLR, Warmup: c.Warmup, Total: c.Total}
			for k, want := range c.LR {
				if got := s.LR(k); math.Abs(got-want) > 1e-6*c.BaseLR {
					t.Errorf("after %d steps: %v, want %v", k, got, want)
				}
			}
		})
	}
}
