package eval

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/evalfleet/evalfleet/pkg/blob"
	"github.com/evalfleet/evalfleet/pkg/chat"
	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/pkg/orderedjson"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/agentorch/internal/dataset"
)

// Blobs keeps bodies by their content, apart for each project.
type Blobs interface {
	// Put keeps a body and returns its name once it is durable.
	Put(ctx context.Context, project string, r io.Reader, mediaType string) (*contentv1.BlobRef, error)
	// Open reads a body. It fails with NOT_FOUND where there is none.
	Open(ctx context.Context, project, hash string) (io.ReadCloser, error)
}

// readSamples reads the samples that a specification asks for: all rows of its dataset are read and checked, then those that were selected are kept.
func readSamples(ctx context.Context, blobs Blobs, project string, spec *agentv1.EvalSpec) (*Samples, error) {
	d, samples, err := source(ctx, blobs, project, spec.GetDataset())
	if err != nil {
		return nil, err
	}
	if samples.Len() == 0 {
		return nil, rpcerr.InvalidField("spec.dataset", "dataset %s has no samples", d.Name)
	}
	return selected(d, samples, spec)
}

// source reads all samples of a dataset. The dataset has nothing but their ids, by which they are selected; the rest of each is packed.
func source(ctx context.Context, blobs Blobs, project string, from *agentv1.Dataset) (*dataset.Dataset, *Samples, error) {
	switch s := from.GetSource().(type) {
	case *agentv1.Dataset_Inline:
		return inline(from.GetName(), s.Inline.GetSamples())
	case *agentv1.Dataset_File:
		return file(ctx, blobs, project, from, s.File)
	case *agentv1.Dataset_Worker:
		return nil, nil, rpcerr.NotBuiltYet("a dataset made by a worker")
	}
	return nil, nil, rpcerr.InvalidField("spec.dataset", "a dataset needs a source: inline samples or a file")
}

func inline(name string, given []*agentv1.Sample) (*dataset.Dataset, *Samples, error) {
	d := &dataset.Dataset{Name: name, Samples: make([]dataset.Sample, len(given))}
	samples := &Samples{}
	for i, s := range given {
		if len(s.GetInput()) == 0 {
			return nil, nil, rpcerr.InvalidField(fmt.Sprintf("spec.dataset.inline.samples[%d].input", i), "a sample needs an input")
		}
		if s.GetId() != "" || s.GetIntegerId() {
			id, err := dataset.ParseID(s.GetId(), s.GetIntegerId())
			if err != nil {
				return nil, nil, rpcerr.InvalidField(fmt.Sprintf("spec.dataset.inline.samples[%d].id", i), "%v", err)
			}
			d.Samples[i].ID = id
		}
		s = proto.CloneOf(s)
		for _, m := range s.GetInput() {
			m.Source = modelv1.MessageSource_MESSAGE_SOURCE_INPUT
		}
		if err := samples.add(s); err != nil {
			return nil, nil, err
		}
	}
	return d, samples, nil
}

func file(ctx context.Context, blobs Blobs, project string, from *agentv1.Dataset, f *agentv1.DatasetFile) (*dataset.Dataset, *Samples, error) {
	fields, err := dataset.ParseFields([]byte(f.GetFieldsJson()))
	if err != nil {
		return nil, nil, err
	}
	if err := blob.CheckName(project, f.GetBlob().GetHash()); err != nil {
		return nil, nil, rpcerr.InvalidField("spec.dataset.file.blob.hash", "%v", err)
	}
	body, err := blobs.Open(ctx, project, f.GetBlob().GetHash())
	if err != nil {
		return nil, nil, rpcerr.Wrap(err, "dataset %s", from.GetName())
	}
	defer body.Close()
	samples := &Samples{}
	var ids []dataset.ID
	err = dataset.Each(ctx, body, dataset.Options{
		Name: from.GetName(), Format: dataset.Format(f.GetFormat()), Fields: fields, AutoID: f.GetAutoId(),
		ShuffleChoices: f.ShuffleChoicesSeed, Delimiter: f.GetDelimiter(), Columns: f.GetColumns(),
	}, func(s dataset.Sample) error {
		m, err := message(&s)
		if err != nil {
			return rpcerr.InvalidField("spec.dataset", "sample %d: %v", len(ids)+1, err)
		}
		ids = append(ids, s.ID)
		return samples.add(m)
	})
	if err != nil {
		if fault, ok := errors.AsType[*dataset.Error](err); ok && from.GetLocation() != "" {
			fault.File = from.GetLocation()
		}
		if _, ofContent := errors.AsType[*dataset.Error](err); !ofContent {
			return nil, nil, rpcerr.Wrap(err, "dataset %s", from.GetName())
		}
		return nil, nil, rpcerr.InvalidField("spec.dataset", "%v", err)
	}
	d := &dataset.Dataset{Name: from.GetName(), Samples: make([]dataset.Sample, len(ids))}
	for i, id := range ids {
		d.Samples[i].ID = id
	}
	return d, samples, nil
}

// message makes the message of a sample as it was read.
func message(s *dataset.Sample) (*agentv1.Sample, error) {
	m := &agentv1.Sample{
		Choices: s.Choices,
		Target:  &agentv1.Target{Values: s.Targets, List: s.TargetIsList},
	}
	if s.Messages == nil {
		m.InputText = true
		user := chat.User(s.Text)
		user.Source = modelv1.MessageSource_MESSAGE_SOURCE_INPUT
		m.Input = []*modelv1.ChatMessage{user}
	}
	for _, raw := range s.Messages {
		parsed, err := chat.ParseMessage(raw)
		if err != nil {
			return nil, err
		}
		m.Input = append(m.Input, parsed)
	}
	if s.Metadata != nil {
		m.MetadataJson = string(orderedjson.Append(nil, s.Metadata))
	}
	for _, f := range s.Files {
		content, err := contentOf(f.Content)
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", f.Path, err)
		}
		if m.Files == nil {
			m.Files = map[string][]byte{}
		}
		m.Files[f.Path] = content
	}
	if s.Setup != nil {
		setup, err := contentOf(*s.Setup)
		if err != nil {
			return nil, fmt.Errorf("setup: %w", err)
		}
		m.Setup = string(setup)
	}
	if s.Sandbox != nil {
		m.Sandbox = &sandboxv1.SandboxSpec{Driver: s.Sandbox.Type}
		if s.Sandbox.Config != nil {
			m.Sandbox.DriverConfigJson = s.Sandbox.Config.Text
		}
	}
	return m, nil
}

// contentOf returns what a content stands for. Only data URIs stand for something else than themselves: a dataset that came as a body has no folder beside it.
func contentOf(c dataset.Content) ([]byte, error) {
	head, data, ok := strings.Cut(c.Text, ",")
	if !ok || !strings.HasPrefix(head, "data:") {
		return []byte(c.Text), nil
	}
	if strings.HasSuffix(head, ";base64") {
		return base64.StdEncoding.DecodeString(data)
	}
	text, err := url.PathUnescape(data)
	return []byte(text), err
}

// selected numbers the samples, shuffles them and keeps those that the specification asks for.
func selected(d *dataset.Dataset, samples *Samples, spec *agentv1.EvalSpec) (*Samples, error) {
	if err := d.AssignIDs(); err != nil {
		return nil, rpcerr.InvalidField("spec.dataset", "%v", err)
	}
	position := make(map[dataset.ID]int, len(d.Samples))
	for i := range d.Samples {
		position[d.Samples[i].ID] = i
	}
	if spec.ShuffleSeed != nil {
		d.Shuffle(spec.GetShuffleSeed())
	}
	var sel dataset.Selection
	if spec.GetLimit() != nil {
		sel.Range = &dataset.Range{Start: int(spec.GetLimit().GetStart()), End: int(spec.GetLimit().GetEnd())}
	}
	for _, id := range spec.GetSampleIds() {
		sel.IDs = append(sel.IDs, dataset.TextID(id))
	}
	chosen, _, err := d.Select(sel)
	if err != nil {
		return nil, rpcerr.InvalidField("spec.sample_ids", "%v", err)
	}
	kept := &Samples{}
	for i := range chosen.Samples {
		id := chosen.Samples[i].ID
		sample := samples.At(position[id])
		sample.Id, sample.IntegerId = id.String(), id.IsInteger()
		if err := kept.add(sample); err != nil {
			return nil, err
		}
	}
	if kept.Len() == 0 {
		return nil, rpcerr.InvalidField("spec.limit", "no sample is left of the %d in dataset %s", samples.Len(), d.Name)
	}
	return kept, nil
}

// datasetMediaType is that of the samples as an eval keeps them: a serialized SampleList.
const datasetMediaType = "application/vnd.evalfleet.samples+protobuf"

// storeSamples keeps an eval's samples as one body.
func storeSamples(ctx context.Context, blobs Blobs, project string, samples *Samples) (*contentv1.BlobRef, error) {
	return blobs.Put(ctx, project, bytes.NewReader(samples.list), datasetMediaType)
}

// loadSamples reads an eval's samples back.
func loadSamples(ctx context.Context, blobs Blobs, project string, ref *contentv1.BlobRef) (*Samples, error) {
	body, err := blobs.Open(ctx, project, ref.GetHash())
	if err != nil {
		return nil, fmt.Errorf("open the samples: %w", err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read the samples: %w", err)
	}
	samples, err := unpack(b)
	if err != nil {
		return nil, fmt.Errorf("read the samples: %w", err)
	}
	return samples, nil
}
