package vae

// Tensors returns the names, in the order of the forward pass, and the shapes
// of a model's tensors in diffusers' layout.
func (c Config) Tensors() (names []string, shapes map[string][]int) {
	s := c.tensors()
	return s.names, s.dims
}
