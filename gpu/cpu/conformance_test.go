package cpu_test

import (
	"testing"

	"longship/gpu"
	"longship/gpu/gputest"
)

func TestConformance(t *testing.T) {
	gputest.Device(t, func(t testing.TB) gpu.Device { return openBare(t) })
}

func TestStreamer(t *testing.T) {
	gputest.Streamer(t, func(t testing.TB) gpu.Device { return openBare(t) })
}
