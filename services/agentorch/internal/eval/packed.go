package eval

import (
	"fmt"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

// Samples are the samples of an evaluation in the form in which they are stored, a serialized SampleList: a short sample takes tens of bytes so, and
// hundreds as a message. Each is decoded when it is asked for. Reading is safe for concurrent use.
type Samples struct {
	list []byte
	ends []int // of each sample in list
}

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

// unpack takes a serialized SampleList, whose samples it checks.
func unpack(list []byte) (*Samples, error) {
	s := &Samples{list: list}
	for at := 0; at < len(list); {
		number, kind, n := protowire.ConsumeField(list[at:])
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		if number != sampleField || kind != protowire.BytesType {
			return nil, fmt.Errorf("field %d is not known", number)
		}
		at += n
		s.ends = append(s.ends, at)
		if _, err := s.decode(len(s.ends) - 1); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add appends a sample.
func (s *Samples) add(sample *agentv1.Sample) (err error) {
	options := proto.MarshalOptions{Deterministic: true}
	s.list = protowire.AppendTag(s.list, sampleField, protowire.BytesType)
	s.list = protowire.AppendVarint(s.list, uint64(options.Size(sample)))
	s.list, err = options.MarshalAppend(s.list, sample)
	s.ends = append(s.ends, len(s.list))
	return err
}

// Len is how many samples there are.
func (s *Samples) Len() int { return len(s.ends) }

// At decodes the sample at a position from 0 to Len-1. It is the caller's own.
func (s *Samples) At(i int) *agentv1.Sample {
	sample, err := s.decode(i)
	if err != nil {
		panic(err) // cannot be: it was checked, or encoded here
	}
	return sample
}

// All decodes one sample after the other.
func (s *Samples) All() iter.Seq2[int, *agentv1.Sample] {
	return func(yield func(int, *agentv1.Sample) bool) {
		for i := range s.ends {
			if !yield(i, s.At(i)) {
				return
			}
		}
	}
}

func (s *Samples) decode(i int) (*agentv1.Sample, error) {
	start := 0
	if i > 0 {
		start = s.ends[i-1]
	}
	_, _, tag := protowire.ConsumeTag(s.list[start:])
	body, n := protowire.ConsumeBytes(s.list[start+tag:])
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	sample := &agentv1.Sample{}
	return sample, proto.Unmarshal(body, sample)
}
