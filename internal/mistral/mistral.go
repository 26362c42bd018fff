// Package mistral describes the text tower of FLUX.2-dev: the language model of
// Mistral Small 3.2 24B (Mistral3ForConditionalGeneration), of which the
// embedding and the first 30 of 40 layers are used. The arithmetic is in
// internal/texttower.
package mistral

import "longship/internal/texttower"

// SystemMessage is the system message that FLUX.2-dev was trained with.
const SystemMessage = "You are an AI that reasons about image descriptions. You give structured responses focusing on object relationships, object\nattribution and actions without speculation."

// Family returns the tower's description.
func Family() texttower.Family {
	return texttower.Family{
		Name:     "Mistral 3",
		Types:    []string{"mistral3", "mistral"},
		Prefixes: []string{"language_model.model.", "model.language_model.", "model."},
		Template: Template(SystemMessage),
		Remove:   []string{"[IMG]"},
		PadLeft:  true,
		PadToken: "<pad>",
	}
}

// Template returns the conversation of a system message and one user message,
// the caption, without a generation prompt.
func Template(system string) string {
	return "<s>[SYSTEM_PROMPT]" + system + "[/SYSTEM_PROMPT][INST]" + texttower.Mark + "[/INST]"
}
