// Package weights gives a model its weights under the model's own names,
// whatever a file calls them. A model lists what it wants as Targets: a name, a
// shape, and the rows of which of the file's tensors make it up. Bind finds
// them in a safetensors.Set, checks all shapes, and reports everything that is
// missing, misshapen or unknown in one error. Nothing is read before a Weight
// is asked for rows.
//
// The name maps of the FLUX.2 transformer's three layouts (diffusers, BFL's
// single files, the same with ComfyUI's prefix) are here; those of other models
// stand with the models and use the same Targets. Binding and reading may be
// done from any goroutine.
package weights
