"""Train the tokenizer of the small model scenes-clip: byte-level BPE, 4,000 entries, lower-cased, four languages.

    pip install babel==2.18.0 emoji==2.16.0     # only for this script: their word lists
    python scripts/build_scenes_tokenizer.py [FOLDER]

It is trained on the captions of `scenes`, the common words below, and Unicode CLDR's names of countries, languages,
months and days (from babel) and of emoji (from emoji), in English, German, French and Russian. Captions of every split
have the same words. The same package versions (of tokenizers too, which breaks ties) give the same bytes.
"""

import argparse
import json
import re
from collections import Counter
from pathlib import Path

ASSETS = Path(__file__).parents[1] / "src/clip_geometry/assets/scenes-clip"
LANGUAGES = ("en", "de", "fr", "ru")
VOCABULARY_SIZE = 4000
PAD, START, END = "<pad>", "<start>", "<end>"

COMMON = {
    "en": """a an the this that these those i you he she it we they and or but not no yes of to in on at by for from
        with without over under near next behind between above below into out up down is are was were be has have
        can will do does what who where when how one two three four five six seven eight nine ten many some all
        more most other new old good big long short high young open several photo photograph picture image drawing
        painting sketch shape object scene colour color background man woman child boy girl people person group
        dog cat bird horse cow sheep animal tree flower grass water sea beach river mountain sky sun snow street
        road house building room kitchen table chair bed window door car bus train plane boat bicycle food plate
        pizza cake fruit apple ball game field hand head face eye hair shirt sitting standing walking running
        playing eating holding looking wearing riding flying top bottom left right middle centre front side""",
    "de": """der die das den dem des ein eine einen einem einer ich du er sie es wir ihr und oder aber nicht kein ja
        von zu in im an am auf bei für aus mit ohne über unter neben hinter zwischen vor nach ist sind war wird hat
        haben kann was wer wo wann wie eins zwei drei vier fünf sechs sieben acht neun zehn viele einige alle mehr
        andere neu alt gut lang kurz hoch jung offen mehrere foto fotografie bild zeichnung gemälde skizze form
        objekt szene farbe hintergrund mann frau kind junge mädchen leute person gruppe hund katze vogel pferd kuh
        schaf tier baum blume gras wasser meer strand fluss berg himmel sonne schnee straße haus gebäude zimmer
        küche tisch stuhl bett fenster tür auto bus zug flugzeug boot fahrrad essen teller kuchen obst apfel ball
        spiel feld hand kopf gesicht auge haar hemd sitzt steht geht läuft spielt isst hält schaut trägt fährt""",
    "fr": """le la les un une des du de ce cette ces je tu il elle nous vous ils elles et ou mais ne pas non oui à au
        aux en dans sur sous par pour avec sans près derrière entre devant est sont était a ont peut que qui où
        quand comment deux trois quatre cinq six sept huit neuf dix beaucoup quelques tout tous plus autre nouveau
        vieux bon long court haut jeune ouvert plusieurs photo photographie image dessin peinture croquis forme
        objet scène couleur fond homme femme enfant garçon fille gens personne groupe chien chat oiseau cheval
        vache mouton animal arbre fleur herbe eau mer plage rivière montagne ciel soleil neige rue route maison
        bâtiment chambre cuisine table chaise lit fenêtre porte voiture bus train avion bateau vélo nourriture
        assiette gâteau fruit pomme balle jeu champ main tête visage œil cheveux chemise assis debout marche court
        joue mange tient regarde porte""",
    "ru": """и или но не нет да в во на с со у к по за из от до для без над под рядом между перед после о об я ты он
        она оно мы вы они это этот эта эти тот был была было были есть что кто где когда как один одна два две три
        четыре пять шесть семь восемь девять десять много несколько все больше другой новый старый хороший длинный
        короткий высокий молодой открытый фото фотография изображение картина рисунок набросок форма предмет сцена
        цвет фон мужчина женщина ребёнок мальчик девочка люди человек группа собака кошка птица лошадь корова овца
        животное дерево цветок трава вода море пляж река гора небо солнце снег улица дорога дом здание комната
        кухня стол стул кровать окно дверь машина автобус поезд самолёт лодка велосипед еда тарелка торт фрукт
        яблоко мяч игра поле рука голова лицо глаз волосы рубашка сидит стоит идёт бежит играет ест держит смотрит
        едет""",
}


def caption_words(scenes: int = 2000) -> list[str]:
    """All captions of the first training scenes and all class names, in all languages."""
    from clip_geometry.data.scenes import caption, class_names
    from clip_geometry.data.scenes.draw import CAPTIONS, sample

    some = [sample(0, "train", k) for k in range(scenes)]
    captions = [caption(scene, n, language) for scene in some for n in range(CAPTIONS) for language in LANGUAGES]
    return captions + [name for language in LANGUAGES for name in class_names(language)]


def cldr_words(language: str) -> list[str]:
    """Names of countries, languages, months, days and emoji, each word as often as it occurs, at most 20 times."""
    from babel import Locale
    from emoji import EMOJI_DATA

    locale = Locale(language)
    names = [*locale.territories.values(), *locale.languages.values()]
    names += [name for kind in (locale.months, locale.days) for name in kind["format"]["wide"].values()]
    skin_tones = re.compile("[\U0001f3fb-\U0001f3ff]")  # five copies of a name
    names += [
        entry[language] for sign, entry in EMOJI_DATA.items() if language in entry and not skin_tones.search(sign)
    ]
    counts = Counter(word for name in names for word in re.findall(r"[^\W\d_]{2,}", str(name).lower()))
    return [word for word, count in sorted(counts.items()) for _ in range(min(count, 20))]


def train():
    """Trains the tokenizer. The end token has the highest id, so that pooling at the argmax finds it."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - 1,
        special_tokens=[PAD, START],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    common = [word for language in LANGUAGES for word in COMMON[language].split() for _ in range(20)]
    general = [word for language in LANGUAGES for word in cldr_words(language)]
    tokenizer.train_from_iterator([*caption_words(), *common, *general], trainer)
    tokenizer.add_special_tokens([END])
    ends = [(token, tokenizer.token_to_id(token)) for token in (START, END)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{START} $A {END}", special_tokens=ends)
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ASSETS, help=f"default: {ASSETS}")
    folder = parser.parse_args().folder
    context_length = json.loads((ASSETS / "open_clip_config.json").read_text())["model_cfg"]["text_cfg"][
        "context_length"
    ]
    tokenizer = train()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "bos_token": START,
        "eos_token": END,
        "model_max_length": context_length,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{folder}: {tokenizer.get_vocab_size()} entries")


if __name__ == "__main__":
    main()
