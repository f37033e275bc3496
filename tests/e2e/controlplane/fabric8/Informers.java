import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.dsl.base.ResourceDefinitionContext;
import io.fabric8.kubernetes.client.http.BasicBuilder;
import io.fabric8.kubernetes.client.http.HttpRequest;
import io.fabric8.kubernetes.client.http.Interceptor;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/**
 * Informers of fabric8 as controllers have them, telling what they see in the lines of the Go program beside this one: each request, "synced",
 * each event, and at the end of standard input what each informer holds. Takes the same flags.
 */
public final class Informers {
  private static synchronized void tell(int informer, String rest) {
    System.out.println("{\"informer\":" + informer + "," + rest + "}");
    System.out.flush();
  }

  private static String quoted(String text) {
    return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
  }

  private static String key(GenericKubernetesResource object) {
    String namespace = object.getMetadata().getNamespace();
    String name = object.getMetadata().getName();
    return namespace == null ? name : namespace + "/" + name;
  }

  private static ResourceEventHandler<GenericKubernetesResource> handler(int informer) {
    return new ResourceEventHandler<>() {
      private void event(String what, GenericKubernetesResource object) {
        String version = object.getMetadata().getResourceVersion();
        tell(informer, "\"event\":\"" + what + "\",\"key\":" + quoted(key(object)) + ",\"version\":" + quoted(version));
      }

      @Override
      public void onAdd(GenericKubernetesResource object) {
        event("add", object);
      }

      @Override
      public void onUpdate(GenericKubernetesResource before, GenericKubernetesResource object) {
        event("update", object);
      }

      @Override
      public void onDelete(GenericKubernetesResource object, boolean unknown) {
        event("delete", object);
      }
    };
  }

  private static KubernetesClient client(String kubeconfig, int informer) {
    return new KubernetesClientBuilder()
        .withConfig(Config.fromKubeconfig(new File(kubeconfig)))
        .withHttpClientBuilderConsumer(builder -> builder.addOrReplaceInterceptor("teller", new Interceptor() {
          @Override
          public void before(BasicBuilder basic, HttpRequest request, RequestTags tags) {
            tell(informer, "\"request\":" + quoted(request.uri().toString()));
          }
        }))
        .build();
  }

  public static void main(String[] arguments) throws Exception {
    Map<String, String> flags = new TreeMap<>();
    for (int i = 0; i + 1 < arguments.length; i += 2) {
      flags.put(arguments[i], arguments[i + 1]);
    }
    String[] resource = flags.get("-resource").split("\\.", 3);
    ResourceDefinitionContext context = new ResourceDefinitionContext.Builder()
        .withPlural(resource[0]).withVersion(resource[1]).withGroup(resource[2])
        .withNamespaced(false).build();
    int count = Integer.parseInt(flags.getOrDefault("-informers", "1"));
    List<KubernetesClient> clients = new ArrayList<>();
    List<SharedIndexInformer<GenericKubernetesResource>> informers = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      KubernetesClient client = client(flags.get("-kubeconfig"), i);
      clients.add(client);
      informers.add(client.genericKubernetesResources(context).inform(handler(i)));
      tell(i, "\"synced\":true");
    }
    while (System.in.read() >= 0) {
      // Whoever started us ends the input when it has seen enough.
    }
    for (int i = 0; i < count; i++) {
      String held = informers.get(i).getStore().list().stream()
          .sorted((one, other) -> key(one).compareTo(key(other)))
          .map(object -> quoted(key(object)) + ":" + quoted(object.getMetadata().getResourceVersion()))
          .collect(Collectors.joining(","));
      tell(i, "\"holds\":{" + held + "}");
      informers.get(i).stop();
      clients.get(i).close();
    }
  }
}
