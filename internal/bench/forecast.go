package bench

import (
	"context"
	"errors"
	"fmt"

	"longship/gpu/memory"
	"longship/gpu/profile"
	"longship/internal/forecast"
)

// forecastSteps are the steps of a forecast: those that fill the ring, and two
// that stand for all others.
const forecastSteps = 2

// Forecast is what is foreseen of a case on a card.
type Forecast struct {
	Card forecast.Card `json:"card"`
	// Profile is of an average step, as a run on the card measures it.
	Profile *profile.Summary `json:"profile"`
	Device  int64            `json:"device_bytes"` // most of the card's memory, what is beside our buffers included
	Pinned  int64            `json:"pinned_bytes"` // most page-locked memory of the host
}

// Forecast runs the stages of a case on a card that does no work, on weights
// that are not there. It needs no card, takes little memory and fails as a run
// on the card fails: a cap that cannot hold the run is a *pipeline.HeadError.
func (o Options) Forecast(ctx context.Context, c Case, card forecast.Card) (*Forecast, error) {
	dev := forecast.New(card)
	o.Device, o.layout, o.Trace, o.OnEvent = dev, true, nil, nil
	o.Warmup, o.Steps = profile.Warmup, forecastSteps
	r, err := o.run(ctx, c)
	if err != nil {
		return nil, err
	}
	f := &Forecast{Card: card, Profile: r.Profile}
	f.Device, f.Pinned = dev.Peak()
	return f, nil
}

// SmallestCap returns the smallest cap that can work, as an error says it that
// was caused by one that cannot.
func SmallestCap(err error) (size string, ok bool) {
	var none *memory.NoRoomError
	if !errors.As(err, &none) || none.Cap == 0 {
		return "", false
	}
	return fmt.Sprintf("%dMiB", (none.Cap+1<<20-1)>>20), true
}

// Least returns the smallest cap that works for a case on a card.
func (o Options) Least(ctx context.Context, c Case, card forecast.Card) (string, error) {
	c.Offload, c.Cap = "auto", fmt.Sprintf("%dMiB", (card.Own+beside)>>20)
	f, err := o.Forecast(ctx, c, card)
	if size, ok := SmallestCap(err); ok {
		return size, nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%dMiB", f.Device>>20), nil
}

// beside is room for what a run takes beside the weights and its context.
const beside = 512 << 20
