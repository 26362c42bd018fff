// Package adapter has the trained part of a model: low-rank pairs on its
// Linears (LoRA; Hu et al., "LoRA: Low-Rank Adaptation of Large Language
// Models", 2021), where they are put, how they start, and how files of others
// are read into them.
//
//	y = x·Wᵀ + s·(x·Aᵀ)·Bᵀ,   A [r, in], B [rows, r], s = alpha/r
//
// Select finds the places, New takes the memory, Set.Init or File.Write sets the
// values; a model built with the Set then computes with it.
package adapter
