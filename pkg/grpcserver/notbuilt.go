package grpcserver

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	optionsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/options/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// notBuilt is the error of a method that no server implements if the protocol declares that it is not built, else err.
func notBuilt(method string, err error) error {
	if status.Code(err) != codes.Unimplemented {
		return err
	}
	descriptor := methodOf(method)
	if descriptor == nil {
		return err
	}
	capability, _ := proto.GetExtension(descriptor.Options(), optionsv1.E_NotBuilt).(string)
	if capability == "" {
		return err
	}
	return rpcerr.NotBuiltYet(capability)
}

// methodOf returns the descriptor of a method that this program knows, such as `/package.Service/Method`, or nil.
// Forwarded methods are included.
func methodOf(method string) protoreflect.MethodDescriptor {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service).Append(protoreflect.Name(name)))
	if err != nil {
		return nil
	}
	descriptor, _ := found.(protoreflect.MethodDescriptor)
	return descriptor
}
