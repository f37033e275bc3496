// Informers as controllers have them (client-go's, nothing of our own), telling what they see: one JSON line for each request that they
// send and for each event that they hand to their controller; at the end one line for what each of them holds.
//
//	informers -kubeconfig FILE -resource resourceslices.v1.resource.sluice.dev [-informers 20] [-metadata]
//
// Lines: {"informer":0,"request":"…?watch=true","status":200} {"informer":0,"synced":true} {"informer":0,"event":"add","key":"ns/name",
// "version":"7"} {"informer":0,"holds":{"ns/name":"7"}}. Ends on SIGTERM or when standard input ends.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

type line struct {
	Informer int               `json:"informer"`
	Request  string            `json:"request,omitempty"`
	Status   int               `json:"status,omitempty"`
	Error    string            `json:"error,omitempty"`
	Synced   bool              `json:"synced,omitempty"`
	Event    string            `json:"event,omitempty"`
	Key      string            `json:"key,omitempty"`
	Version  string            `json:"version,omitempty"`
	Holds    map[string]string `json:"holds,omitzero"`
}

// teller writes whole lines, whoever calls.
type teller struct {
	mutex   sync.Mutex
	encoder *json.Encoder
}

func (t *teller) tell(l line) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if err := t.encoder.Encode(l); err != nil {
		log.Fatal(err)
	}
}

// recorder tells of each request when its headers were answered.
type recorder struct {
	next     http.RoundTripper
	informer int
	out      *teller
}

func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	l := line{Informer: r.informer, Request: request.URL.RequestURI()}
	if err != nil {
		l.Error = err.Error()
	} else {
		l.Status = response.StatusCode
	}
	r.out.tell(l)
	return response, err
}

func start(ctx context.Context, number int, config *rest.Config, gvr schema.GroupVersionResource, onlyMetadata bool, out *teller) (cache.SharedIndexInformer, error) {
	own := rest.CopyConfig(config)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return recorder{next, number, out} })
	var informer cache.SharedIndexInformer
	if onlyMetadata {
		client, err := metadata.NewForConfig(own)
		if err != nil {
			return nil, err
		}
		informer = metadatainformer.NewSharedInformerFactory(client, 0).ForResource(gvr).Informer()
	} else {
		client, err := dynamic.NewForConfig(own)
		if err != nil {
			return nil, err
		}
		informer = dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(gvr).Informer()
	}
	tell := func(event string, object any) {
		key, version := identity(object)
		out.tell(line{Informer: number, Event: event, Key: key, Version: version})
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { tell("add", object) },
		UpdateFunc: func(_, object any) { tell("update", object) },
		DeleteFunc: func(object any) { tell("delete", object) },
	})
	if err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			out.tell(line{Informer: number, Synced: true})
		}
	}()
	return informer, nil
}

func identity(object any) (key, version string) {
	// A deletion that happened while nobody watched arrives as what was last known.
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return gone.Key, "unknown"
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		log.Fatal(err)
	}
	return cache.MetaObjectToName(accessor).String(), accessor.GetResourceVersion()
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "whose informers")
	resource := flag.String("resource", "", "resource.version.group")
	count := flag.Int("informers", 1, "how many")
	onlyMetadata := flag.Bool("metadata", false, "metadata informers, as the garbage collector has them")
	flag.Parse()
	gvr, _ := schema.ParseResourceArg(*resource)
	if gvr == nil {
		log.Fatalf("-resource %q is not resource.version.group", *resource)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()

	out := &teller{encoder: json.NewEncoder(os.Stdout)}
	informers := make([]cache.SharedIndexInformer, *count)
	for number := range informers {
		if informers[number], err = start(ctx, number, config, *gvr, *onlyMetadata, out); err != nil {
			log.Fatal(err)
		}
	}
	<-ctx.Done()
	for number, informer := range informers {
		holds := map[string]string{}
		for _, object := range informer.GetStore().List() {
			key, version := identity(object)
			holds[key] = version
		}
		out.tell(line{Informer: number, Holds: holds})
	}
}
