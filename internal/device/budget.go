package device

import (
	"math"

	"github.com/dustin/go-humanize"

	"longship/gpu"
)

// room returns the bytes that the stages may take together: of a card with
// memory of its own what is free, or what the cap leaves when the process's own
// share beside our buffers (context, libraries) is taken off; the CPU has no
// limit unless one is set.
func room(vram string, dev gpu.Device) (int64, error) {
	limit := int64(math.MaxInt64)
	if vram != "auto" && vram != "" {
		n, err := humanize.ParseBytes(vram)
		if err != nil || n == 0 || n > math.MaxInt64 {
			return 0, fault("vram", "%q is not auto or a size like 23.5GiB", vram)
		}
		limit = int64(n)
	}
	card, ok := dev.(gpu.MemReporter)
	if !ok {
		return limit, nil
	}
	m, err := card.MemInfo()
	if err != nil {
		return 0, err
	}
	free := m.Free - growth
	rest := limit - m.Own - growth
	switch {
	case limit == math.MaxInt64:
		return max(free, 0), nil
	case limit > m.Total:
		return 0, fault("vram", "%s is above the card's %s", vram, size(m.Total))
	case rest <= 0:
		return 0, fault("vram", "of %s the CUDA context and libraries take %s; more is needed for anything to run", vram, size(m.Own+growth))
	case rest > free:
		return 0, fault("vram", "%s: other processes have %s of the card's %s; auto, or at most %s, leaves them that",
			vram, size(m.Total-m.Free-m.Own), size(m.Total), size(m.Free+m.Own))
	}
	return rest, nil
}

// growth is what CUDA and cublasLt take of a card after it was opened: kernels
// of theirs are loaded when they are first called.
const growth = 256 << 20

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
