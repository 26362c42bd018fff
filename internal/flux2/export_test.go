package flux2

// Rope is Config.rope, for comparison with the reference.
func Rope(c Config, ids [][axes]int) (cos, sin []float32) { return c.rope(ids) }

// Positions is Shape.positions.
func Positions(s Shape) [][axes]int { return s.positions() }
