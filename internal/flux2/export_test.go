package flux2

// Rope is Config.rope, for comparison with the reference.
func Rope(c Config, s Shape) (cos, sin []float32) { return c.rope(s) }
