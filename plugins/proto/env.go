package proto

import "longship/pipeline"

// head is what of a pipeline.Env crosses to a program: what is written above
// the stages, and how the run was started. CBOR.
type head struct {
	Name        string `cbor:"name"`
	Device      string `cbor:"device"`
	VRAM        string `cbor:"vram"`
	Model       string `cbor:"model"`
	VAE         string `cbor:"vae"`
	TextEncoder string `cbor:"text_encoder"`
	Tokenizer   string `cbor:"tokenizer"`
	Output      string `cbor:"output"`
	Dir         string `cbor:"dir"`
	Seed        uint64 `cbor:"seed"`
	Config      []byte `cbor:"config"`
	Wait        bool   `cbor:"wait"`
	Rehash      bool   `cbor:"rehash"`
	Profile     bool   `cbor:"profile"`
}

// MarshalEnv returns what of env crosses to a program.
func MarshalEnv(env *pipeline.Env) ([]byte, error) {
	m := env.Model
	return pipeline.Marshal(head{
		env.Name, env.Device, env.VRAM, string(m.Path), string(m.VAE), string(m.TextEncoder), string(m.Tokenizer),
		env.Output, env.Dir, env.Seed, env.Config, env.Wait, env.Rehash, env.Profile,
	})
}

// UnmarshalEnv makes an Env of what crossed.
func UnmarshalEnv(b []byte) (*pipeline.Env, error) {
	var h head
	if err := pipeline.Unmarshal(b, &h); err != nil {
		return nil, err
	}
	p := func(s string) pipeline.Path { return pipeline.Path(s) }
	return &pipeline.Env{
		Name: h.Name, Device: h.Device, VRAM: h.VRAM,
		Model:  pipeline.Model{Path: p(h.Model), VAE: p(h.VAE), TextEncoder: p(h.TextEncoder), Tokenizer: p(h.Tokenizer)},
		Output: h.Output, Dir: h.Dir, Seed: h.Seed, Config: h.Config, Wait: h.Wait, Rehash: h.Rehash, Profile: h.Profile,
	}, nil
}
