package vae

import "fmt"

// shapes is the table of the model's tensors under diffusers' names, in the
// order of the forward pass. bn.num_batches_tracked is not part of it: nothing
// reads it.
type shapes struct {
	names []string
	dims  map[string][]int
}

func (s *shapes) add(name string, dims ...int) {
	s.names = append(s.names, name)
	s.dims[name] = dims
}

func (s *shapes) conv(name string, out, in, side int) {
	s.add(name+".weight", out, in, side, side)
	s.add(name+".bias", out)
}

func (s *shapes) linear(name string, out, in int) {
	s.add(name+".weight", out, in)
	s.add(name+".bias", out)
}

func (s *shapes) norm(name string, n int) {
	s.add(name+".weight", n)
	s.add(name+".bias", n)
}

func (s *shapes) resnet(name string, in, out int) {
	s.norm(name+".norm1", in)
	s.conv(name+".conv1", out, in, 3)
	s.norm(name+".norm2", out)
	s.conv(name+".conv2", out, out, 3)
	if in != out {
		s.conv(name+".conv_shortcut", out, in, 1)
	}
}

func (s *shapes) mid(name string, n int, attention bool) {
	s.resnet(name+".resnets.0", n, n)
	if attention {
		a := name + ".attentions.0"
		s.norm(a+".group_norm", n)
		for _, p := range []string{".to_q", ".to_k", ".to_v", ".to_out.0"} {
			s.linear(a+p, n, n)
		}
	}
	s.resnet(name+".resnets.1", n, n)
}

// The statistics that normalise latents; std is sqrt(var + batch_norm_eps).
const (
	runningMean = "bn.running_mean"
	runningVar  = "bn.running_var"
)

// tensors returns the table of a configuration.
func (c Config) tensors() *shapes {
	s := &shapes{dims: map[string][]int{}}
	last := len(c.Channels) - 1

	in := c.Channels[0]
	s.conv("encoder.conv_in", in, c.InChannels, 3)
	for i, out := range c.Channels {
		b := fmt.Sprintf("encoder.down_blocks.%d", i)
		for j := range c.LayersPerBlock {
			s.resnet(fmt.Sprintf("%s.resnets.%d", b, j), in, out)
			in = out
		}
		if i < last {
			s.conv(b+".downsamplers.0.conv", out, out, 3)
		}
	}
	s.mid("encoder.mid_block", in, c.MidAttention)
	s.norm("encoder.conv_norm_out", in)
	s.conv("encoder.conv_out", 2*c.LatentChannels, in, 3)
	if c.QuantConv {
		s.conv("quant_conv", 2*c.LatentChannels, 2*c.LatentChannels, 1)
	}
	s.add(runningMean, c.TokenChannels())
	s.add(runningVar, c.TokenChannels())

	if c.PostQuantConv {
		s.conv("post_quant_conv", c.LatentChannels, c.LatentChannels, 1)
	}
	decoder := c.decoderChannels()
	in = decoder[last]
	s.conv("decoder.conv_in", in, c.LatentChannels, 3)
	s.mid("decoder.mid_block", in, c.MidAttention)
	for i := range decoder {
		out := decoder[last-i]
		b := fmt.Sprintf("decoder.up_blocks.%d", i)
		for j := range c.LayersPerBlock + 1 {
			s.resnet(fmt.Sprintf("%s.resnets.%d", b, j), in, out)
			in = out
		}
		if i < last {
			s.conv(b+".upsamplers.0.conv", out, out, 3)
		}
	}
	s.norm("decoder.conv_norm_out", in)
	s.conv("decoder.conv_out", c.OutChannels, in, 3)
	return s
}
