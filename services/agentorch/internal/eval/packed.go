package eval

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/task/dataset"
)

// Samples are the samples of an evaluation in their stored form, a serialized SampleList: a short sample takes tens of
// bytes in this form, and hundreds as a message. Each is decoded on demand. Reading is safe for concurrent use.
type Samples struct {
	// chunks are the list in pieces, each with whole samples: one slice would be copied as it grows.
	chunks [][]byte
	places []place
}

// place is the position of a sample, including its tag and length.
type place struct{ chunk, start, end uint32 }

// chunkBytes is how large a chunk is, unless one sample is larger.
const chunkBytes = 256 << 10

// sampleField is the number of the samples in a SampleList.
const sampleField = 1

// PackSamples packs samples.
func PackSamples(samples []*agentv1.Sample) (*Samples, error) {
	s := &Samples{}
	for _, sample := range samples {
		if err := s.add(sample); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// unpack indexes a serialized SampleList, and checks its samples.
func unpack(list []byte) (*Samples, error) {
	if len(list) > math.MaxUint32 {
		return nil, fmt.Errorf("the samples have %d bytes, more than %d", len(list), math.MaxUint32)
	}
	s := &Samples{chunks: [][]byte{list}}
	for at := 0; at < len(list); {
		number, kind, n := protowire.ConsumeField(list[at:])
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if number != sampleField || kind != protowire.BytesType {
			return nil, fmt.Errorf("field %d is not known", number)
		}
		s.places = append(s.places, place{start: uint32(at), end: uint32(at + n)})
		at += n
		if _, err := s.decode(len(s.places) - 1); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add appends a sample.
func (s *Samples) add(sample *agentv1.Sample) (err error) {
	options := proto.MarshalOptions{Deterministic: true}
	size := options.Size(sample)
	s.extend(protowire.SizeTag(sampleField)+protowire.SizeBytes(size), func(list []byte) []byte {
		list = protowire.AppendTag(list, sampleField, protowire.BytesType)
		list = protowire.AppendVarint(list, uint64(size))
		list, err = options.MarshalAppend(list, sample)
		return list
	})
	return err
}

// extend appends a sample of size bytes to the last chunk, or to a new chunk if it does not fit.
func (s *Samples) extend(size int, write func([]byte) []byte) {
	last := len(s.chunks) - 1
	if last < 0 || len(s.chunks[last])+size > cap(s.chunks[last]) {
		s.chunks = append(s.chunks, make([]byte, 0, max(chunkBytes, size)))
		last++
	}
	start := len(s.chunks[last])
	s.chunks[last] = write(s.chunks[last])
	s.places = append(s.places, place{chunk: uint32(last), start: uint32(start), end: uint32(len(s.chunks[last]))})
}

// reader reads the serialized list.
func (s *Samples) reader() io.Reader {
	chunks := make([]io.Reader, len(s.chunks))
	for i, chunk := range s.chunks {
		chunks[i] = bytes.NewReader(chunk)
	}
	return io.MultiReader(chunks...)
}

// pick returns the samples at some positions, in that order.
func (s *Samples) pick(positions []int) *Samples {
	picked := &Samples{places: make([]place, 0, len(positions))}
	for _, i := range positions {
		entry := s.entry(i)
		picked.extend(len(entry), func(list []byte) []byte { return append(list, entry...) })
	}
	return picked
}

// id returns the id of the sample at a position.
func (s *Samples) id(i int) dataset.ID {
	sample := s.At(i)
	id, err := dataset.ParseID(sample.GetId(), sample.GetIntegerId())
	if err != nil {
		panic(err) // cannot be: it was written from an id
	}
	return id
}

// Len is how many samples there are.
func (s *Samples) Len() int { return len(s.places) }

// At decodes the sample at a position from 0 to Len-1. It is the caller's own.
func (s *Samples) At(i int) *agentv1.Sample {
	sample, err := s.decode(i)
	if err != nil {
		panic(err) // cannot be: it was checked, or encoded here
	}
	return sample
}

// All decodes the samples one after another.
func (s *Samples) All() iter.Seq2[int, *agentv1.Sample] {
	return func(yield func(int, *agentv1.Sample) bool) {
		for i := range s.places {
			if !yield(i, s.At(i)) {
				return
			}
		}
	}
}

// entry is the encoded sample at a position.
func (s *Samples) entry(i int) []byte {
	p := s.places[i]
	return s.chunks[p.chunk][p.start:p.end]
}

func (s *Samples) decode(i int) (*agentv1.Sample, error) {
	entry := s.entry(i)
	_, _, tag := protowire.ConsumeTag(entry)
	body, n := protowire.ConsumeBytes(entry[tag:])
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	sample := &agentv1.Sample{}
	return sample, proto.Unmarshal(body, sample)
}
