package memory

import (
	"fmt"

	"longship/gpu"
)

// Spread chooses which units are streamed so that their bytes come nearest to
// share (0..1) of all units' bytes, and lie evenly between the resident ones:
// the copies of a step are then spread over its compute. It returns one flag
// per unit, true for streamed. The choice depends on its arguments alone.
func Spread(units []Unit, share float64) []bool {
	streamed := make([]bool, len(units))
	var total, seen, taken float64
	for _, u := range units {
		total += float64(u.Bytes)
	}
	target := share * total
	// Error diffusion over bytes: a unit is streamed when that brings the bytes
	// streamed so far nearer to share times the bytes seen so far.
	for i, u := range units {
		b := float64(u.Bytes)
		seen += b
		if share*seen-taken >= b/2 && taken < target {
			streamed[i] = true
			taken += b
		}
	}
	return streamed
}

// Streamed returns the bytes of the units that are marked as streamed, and of all.
func Streamed(units []Unit, streamed []bool) (part, all int64) {
	for i, u := range units {
		all += u.Bytes
		if streamed[i] {
			part += u.Bytes
		}
	}
	return part, all
}

// Footprint is the device memory in bytes that a Streamer of these units takes:
// the outer unit, the resident ones, and a ring of slots as large as the
// largest streamed one.
func Footprint(outer Unit, units []Unit, streamed []bool, slots int) int64 {
	bytes, slot := outer.Bytes, int64(0)
	for i, u := range units {
		if streamed[i] {
			slot = max(slot, u.Bytes)
		} else {
			bytes += u.Bytes
		}
	}
	return bytes + int64(slots)*slot
}

// Fit chooses what is streamed so that a Streamer takes at most room bytes of
// the device: of the shares 0, 1/n, .. 1 for n units that fit, the one that
// streams the fewest bytes. Where
// even the share 1 does not fit it returns a *NoRoomError.
func Fit(outer Unit, units []Unit, slots int, room int64) ([]bool, error) {
	return fitFrom(outer, units, slots, room, 0)
}

// Nearest returns the share of bytes nearest above share that fits into room
// bytes, as Fit does.
func Nearest(outer Unit, units []Unit, slots int, room int64, share float64) (float64, error) {
	streamed, err := fitFrom(outer, units, slots, room, share)
	if err != nil {
		return 0, err
	}
	part, all := Streamed(units, streamed)
	return float64(part) / float64(max(all, 1)), nil
}

func fitFrom(outer Unit, units []Unit, slots int, room int64, from float64) ([]bool, error) {
	n := len(units)
	least, fewest := int64(-1), int64(-1)
	var best []bool
	for k := range n + 1 {
		share := 1.0
		if n > 0 {
			share = float64(k) / float64(n)
		}
		streamed := Spread(units, share)
		bytes := Footprint(outer, units, streamed, slots)
		if least < 0 || bytes < least {
			least = bytes
		}
		// Of units of different sizes a greater share may be fewer bytes.
		part, _ := Streamed(units, streamed)
		if share >= from && bytes <= room && (best == nil || part < fewest) {
			best, fewest = streamed, part
		}
	}
	if best != nil {
		return best, nil
	}
	return nil, &NoRoomError{Least: least, Room: room}
}

// NoRoomError says that the weights do not fit however many are streamed.
type NoRoomError struct {
	Least int64 // the bytes that any placement takes
	Room  int64 // the bytes there are
	Cap   int64 // limit of the whole card from which on they fit; 0 where the caller did not say
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("the weights take at least %d MiB and %d MiB are left for them", e.Least>>20, max(e.Room, 0)>>20)
}

// Unwrap makes it an error of memory.
func (e *NoRoomError) Unwrap() error { return gpu.ErrOutOfMemory }
