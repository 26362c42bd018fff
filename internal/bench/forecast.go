package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/profile"
	"longship/internal/forecast"
	"longship/pipeline"
)

// forecastSteps are the steps of a forecast: those that fill the ring, and two
// that stand for all others.
const forecastSteps = 2

// Forecast is what is foreseen of a case on a card.
type Forecast struct {
	Card forecast.Card `json:"card"`
	// Profile is of an average step, as a run on the card measures it.
	Profile *profile.Summary `json:"profile"`
	// Parts of the card's memory, in bytes.
	Parts     map[string]int64 `json:"parts"`
	Recompute string           `json:"recompute"`      // as train's key says it
	Streamed  int64            `json:"streamed_bytes"` // of the block weights
	Device    int64            `json:"device_bytes"`   // most of the card's memory, what is beside our buffers included
	Pinned    int64            `json:"pinned_bytes"`   // most page-locked memory of the host
}

// Forecast runs the stages of a case on a card that does no work, on weights
// that are not there. It needs no card, takes little memory and fails as a run
// on the card fails: a cap that cannot hold the run is a *pipeline.HeadError.
func (o Options) Forecast(ctx context.Context, c Case, card forecast.Card) (*Forecast, error) {
	dev := forecast.New(card)
	f := &Forecast{Card: card, Parts: map[string]int64{}}
	o.Device, o.layout, o.Trace, o.OnEvent = dev, true, nil, f.event
	o.Warmup, o.Steps = profile.Warmup, forecastSteps
	r, err := o.run(ctx, c)
	if err != nil {
		return nil, err
	}
	f.Profile = r.Profile
	f.Device, f.Pinned = dev.Peak()
	f.Parts[PartOwn] = card.Own
	return f, nil
}

// foresee returns the forecast of a case on the device that it is measured on;
// nil where the rates of the device are not known.
func (o Options) foresee(ctx context.Context, c Case) (*Forecast, error) {
	card, known := forecast.CardCalled(o.Device.Info().Name)
	mem, ok := o.Device.(gpu.MemReporter)
	if !known || !ok {
		return nil, nil
	}
	m, err := mem.MemInfo()
	if err != nil {
		return nil, err
	}
	card.Bytes, card.Own = m.Free+m.Own, m.Own
	f, err := o.Forecast(ctx, c, card)
	if err != nil && !errors.As(err, new(*pipeline.HeadError)) {
		o.Log.Warn("the case cannot be foreseen", "case", c.String(), "reason", err)
		return nil, nil
	}
	return f, err
}

// What memory of a card is taken for.
const (
	PartOwn       = "context and libraries"
	PartOuter     = "weights outside the blocks"
	PartResident  = "resident units"
	PartRing      = "ring"
	PartBatches   = "batches"
	PartWorkspace = "activations"
	PartAdapter   = "adapter, gradients, optimizer"
)

// Parts lists them.
var Parts = []string{PartOwn, PartOuter, PartResident, PartRing, PartBatches, PartWorkspace, PartAdapter}

// event takes in what the stages tell of their memory.
func (f *Forecast) event(ev pipeline.Event) {
	bytes := func(key string) int64 { return int64(number(ev.Data[key])) }
	switch ev.Event {
	case "placed":
		f.Parts[PartOuter], f.Parts[PartResident], f.Parts[PartRing] = bytes("outer"), bytes("resident"), bytes("ring")
		f.Parts[PartBatches], f.Streamed = bytes("batches"), bytes("streamed")
		f.Parts[PartAdapter] += bytes("train")
	case "workspace":
		f.Parts[PartWorkspace] = bytes("bytes")
		f.Parts[PartAdapter] -= bytes("bytes")
		f.Recompute, _ = ev.Data["recompute"].(string)
	}
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
	keys := maps.Clone(o.PrefetchKeys)
	delete(keys, "offload")
	o.PrefetchKeys = keys
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
