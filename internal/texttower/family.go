package texttower

import "strings"

// Family is what tells one kind of tower from another beyond its sizes: names
// in files, the prompt, padding. internal/mistral and internal/qwen3 define one each.
type Family struct {
	Name     string   // for messages: "Mistral 3"
	Types    []string // the values of model_type in config.json
	Prefixes []string // what tensor names may begin with, before "embed_tokens.weight" and "layers.N."
	QKNorm   bool     // queries and keys are normalised per head before RoPE

	Template string   // the prompt; Mark in it stands for the caption
	Remove   []string // substrings taken out of a caption
	PadLeft  bool     // unless tokenizer_config.json has a padding_side
	PadToken string   // unless tokenizer_config.json has a pad_token
}

// Mark stands for the caption in a Template.
const Mark = "{caption}"

// Prompt returns the text to tokenise for a caption.
func (f Family) Prompt(caption string) string {
	for _, s := range f.Remove {
		caption = strings.ReplaceAll(caption, s, "")
	}
	return strings.Replace(f.Template, Mark, caption, 1)
}
