// Package texttower runs the text towers of FLUX.2, decoder-only language
// models of the Llama kind, and makes prompt embeddings of their hidden states.
//
// A Prompter turns captions into token rows of constant length. A Tower holds
// the layers up to the last one needed, quantised, and encodes prompts, each in
// passes of its own over that constant number of tokens, so that an embedding
// has the same bits whatever it is encoded with. Open reads the weights layer
// by layer; Close gives the memory back. A Tower belongs to one goroutine at a
// time; a Prompter may be shared.
package texttower
