package memory

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
