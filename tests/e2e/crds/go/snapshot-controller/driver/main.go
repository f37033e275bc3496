// A CSI driver of snapshots alone, which keeps them in memory: what the snapshotter of external-snapshotter asks a driver for.
//
// driver SOCKET NAME
package main

import (
	"context"
	"log"
	"net"
	"os"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// snapshotBytes is the size that every snapshot has.
const snapshotBytes = 1 << 30

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedGroupControllerServer

	name string

	mu        sync.Mutex
	snapshots map[string]*csi.Snapshot
	groups    map[string]*csi.VolumeGroupSnapshot
}

func main() {
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	d := &driver{name: os.Args[2], snapshots: map[string]*csi.Snapshot{}, groups: map[string]*csi.VolumeGroupSnapshot{}}
	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterGroupControllerServer(server, d)
	log.Fatal(server.Serve(listener))
}

func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, request)
	log.Printf("%s %v: %v", info.FullMethod, request, err)
	return answer, err
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "1"}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	made := &csi.GetPluginCapabilitiesResponse{}
	for _, service := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE,
		csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE,
	} {
		made.Capabilities = append(made.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: service}},
		})
	}
	return made, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	made := &csi.ControllerGetCapabilitiesResponse{}
	for _, rpc := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
	} {
		made.Capabilities = append(made.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: rpc}},
		})
	}
	return made, nil
}

func (d *driver) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	rpc := &csi.GroupControllerServiceCapability_RPC{
		Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
	}
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{
		{Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: rpc}},
	}}, nil
}

// create returns the snapshot with this handle, made now if there is none. The caller holds d.mu.
func (d *driver) create(handle, volume, group string) *csi.Snapshot {
	if known := d.snapshots[handle]; known != nil {
		return known
	}
	d.snapshots[handle] = &csi.Snapshot{
		SnapshotId:      handle,
		SourceVolumeId:  volume,
		GroupSnapshotId: group,
		SizeBytes:       snapshotBytes,
		CreationTime:    timestamppb.Now(),
		ReadyToUse:      true,
	}
	return d.snapshots[handle]
}

func (d *driver) CreateSnapshot(_ context.Context, request *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &csi.CreateSnapshotResponse{Snapshot: d.create(request.Name, request.SourceVolumeId, "")}, nil
}

func (d *driver) DeleteSnapshot(_ context.Context, request *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.snapshots, request.SnapshotId)
	return &csi.DeleteSnapshotResponse{}, nil
}

// ListSnapshots answers for one snapshot. It knows every handle: others than its own are snapshots made elsewhere.
func (d *driver) ListSnapshots(_ context.Context, request *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	made := &csi.ListSnapshotsResponse{}
	if request.SnapshotId != "" {
		made.Entries = []*csi.ListSnapshotsResponse_Entry{{Snapshot: d.create(request.SnapshotId, "elsewhere", "")}}
	}
	return made, nil
}

func (d *driver) CreateVolumeGroupSnapshot(_ context.Context, request *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.groups[request.Name] == nil {
		group := &csi.VolumeGroupSnapshot{GroupSnapshotId: request.Name, CreationTime: timestamppb.Now(), ReadyToUse: true}
		for _, volume := range request.SourceVolumeIds {
			group.Snapshots = append(group.Snapshots, d.create(request.Name+"/"+volume, volume, request.Name))
		}
		d.groups[request.Name] = group
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: d.groups[request.Name]}, nil
}

func (d *driver) GetVolumeGroupSnapshot(_ context.Context, request *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.groups[request.GroupSnapshotId]; known != nil {
		return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: known}, nil
	}
	return nil, status.Error(codes.NotFound, request.GroupSnapshotId)
}

func (d *driver) DeleteVolumeGroupSnapshot(_ context.Context, request *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.groups, request.GroupSnapshotId)
	for _, handle := range request.SnapshotIds {
		delete(d.snapshots, handle)
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}
